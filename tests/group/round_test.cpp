// Tests RendezvousEpoch: ranks that create several groups in one store.
#include "group/round.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

#include <hookline/store/memory_store.hpp>

namespace hookline::group {
namespace {

class Rounds : public ::testing::Test {
 protected:
  Rounds() { unsetenv("TORCHELASTIC_RESTART_COUNT"); }
  ~Rounds() override { unsetenv("TORCHELASTIC_RESTART_COUNT"); }

  /// True if a key set through one epoch is visible through the other.
  static bool meet(const Round& one, const Round& other) {
    const std::string key = "met by " + other.place()->describe();
    one.place()->set(key, "");
    return other.place()->check({key});
  }

  const std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

TEST_F(Rounds, EachHasAPlaceOfItsOwn) {
  const Round first(store_, 0);
  EXPECT_TRUE(meet(first, Round(store_, 1)));
  const Round second(store_, 1);
  EXPECT_FALSE(meet(first, second));
  EXPECT_TRUE(meet(second, Round(store_, 0)));
}

TEST_F(Rounds, ARankThatNeverCameMeetsTheOthersInTheNextOne) {
  Round failed(store_, 0);
  failed.close();
  const Round late(store_, 1);
  EXPECT_FALSE(meet(failed, late));
  EXPECT_TRUE(meet(late, Round(store_, 0)));
}

TEST_F(Rounds, ARankThatFailedMeetsOneThatDidNot) {
  Round failed(store_, 0);
  const Round made(store_, 1);
  const Round next(store_, 1);  // rank 1 starts over
  failed.close();
  EXPECT_TRUE(meet(next, Round(store_, 0)));
}

TEST_F(Rounds, RanksThatWereStartedAgainHaveNoPast) {
  setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
  const Round before(store_, 0);  // rank 1 exited before it joined
  setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
  const Round after(store_, 1);
  EXPECT_FALSE(meet(before, after));
  EXPECT_TRUE(meet(after, Round(store_, 0)));
}

}  // namespace
}  // namespace hookline::group
