// Tests for Waiters, without connections.
#include "store/waiters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hookline::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(Waiters, KeyWakesClientsWithoutOtherMissingKeys) {
  Waiters waiters;
  waiters.wait(1, {"a"});
  waiters.wait(2, {"a", "b"});
  waiters.wait(3, {"c"});
  waiters.on_key_set("a");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(1));
  EXPECT_FALSE(waiters.is_waiting(1));
  EXPECT_TRUE(waiters.is_waiting(2));
  waiters.on_key_set("a");
  EXPECT_THAT(waiters.take_woken(), IsEmpty());
  waiters.on_key_set("b");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(2));
}

TEST(Waiters, DuplicateKeysWakeOnce) {
  Waiters waiters;
  waiters.wait(1, {"a", "a"});
  waiters.on_key_set("a");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(1));
}

TEST(Waiters, QueuePushWakesOneClientInArrivalOrder) {
  Waiters waiters;
  waiters.wait(1, {"q", "other"});
  waiters.wait(2, {"q"});
  waiters.wait(3, {"q"});
  waiters.on_queue_push("q");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(2));
  waiters.on_queue_push("q");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(3));
  waiters.on_queue_push("q");
  EXPECT_THAT(waiters.take_woken(), IsEmpty());
  waiters.on_key_set("other");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(1));
}

TEST(Waiters, CancelledClientIsNotWoken) {
  Waiters waiters;
  waiters.wait(1, {"a", "b"});
  waiters.wait(2, {"a"});
  waiters.cancel(1);
  waiters.cancel(7);
  waiters.on_key_set("a");
  waiters.on_key_set("b");
  EXPECT_THAT(waiters.take_woken(), ElementsAre(2));
}

TEST(Waiters, BarrierReleasesOnLastArrival) {
  Waiters waiters;
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(waiters.arrive_at_barrier(1, "b", 3));
    EXPECT_FALSE(waiters.arrive_at_barrier(2, "b", 3));
    waiters.on_key_set("b");
    EXPECT_THAT(waiters.take_woken(), IsEmpty());
    EXPECT_TRUE(waiters.arrive_at_barrier(3, "b", 3));
    EXPECT_THAT(waiters.take_woken(), UnorderedElementsAre(1, 2));
  }
  EXPECT_FALSE(waiters.arrive_at_barrier(1, "b", 2));
  waiters.cancel(1);
  EXPECT_FALSE(waiters.arrive_at_barrier(2, "b", 2));
  EXPECT_TRUE(waiters.arrive_at_barrier(3, "b", 1));
}

}  // namespace
}  // namespace hookline::store
