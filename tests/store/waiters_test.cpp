// Tests for Waiters, without connections.
#include "store/waiters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hookline::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(Waiters, AKeyWakesEverybodyWhoMissesNothingElse) {
  Waiters waiters;
  waiters.wait(1, {"a"});
  waiters.wait(2, {"a", "b"});
  waiters.wait(3, {"c"});
  waiters.key_came("a");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(1));
  EXPECT_FALSE(waiters.waits(1));
  EXPECT_TRUE(waiters.waits(2));
  waiters.key_came("a");
  EXPECT_THAT(waiters.take_woken(), IsEmpty());
  waiters.key_came("b");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(2));
}

TEST(Waiters, AKeyThatIsNamedTwiceComesOnce) {
  Waiters waiters;
  waiters.wait(1, {"a", "a"});
  waiters.key_came("a");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(1));
}

TEST(Waiters, AnElementWakesOneClientInTheOrderOfTheirComing) {
  Waiters waiters;
  waiters.wait(1, {"q", "other"});
  waiters.wait(2, {"q"});
  waiters.wait(3, {"q"});
  waiters.element_came("q");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(2));
  waiters.element_came("q");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(3));
  waiters.element_came("q");
  EXPECT_THAT(waiters.take_woken(), IsEmpty());
  waiters.key_came("other");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(1));
}

TEST(Waiters, WhoCancelsIsNotWoken) {
  Waiters waiters;
  waiters.wait(1, {"a", "b"});
  waiters.wait(2, {"a"});
  waiters.cancel(1);
  waiters.cancel(7);
  waiters.key_came("a");
  waiters.key_came("b");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(2));
}

TEST(Waiters, ABarrierLetsThroughWhenTheLastHasCome) {
  Waiters waiters;
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(waiters.arrive(1, "b", 3));
    EXPECT_FALSE(waiters.arrive(2, "b", 3));
    waiters.key_came("b");
    EXPECT_THAT(waiters.take_woken(), IsEmpty());
    EXPECT_TRUE(waiters.arrive(3, "b", 3));
    EXPECT_THAT(waiters.take_woken(), UnorderedElementsAre(1, 2));
  }
  EXPECT_FALSE(waiters.arrive(1, "b", 2));
  waiters.cancel(1);
  EXPECT_FALSE(waiters.arrive(2, "b", 2));
  EXPECT_TRUE(waiters.arrive(3, "b", 1));
}

}  // namespace
}  // namespace hookline::store
