// Tests RendezvousEpoch: ranks that create several groups in one store.
#include "group/rendezvous_epoch.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

#include <hookline/store/memory_store.hpp>

namespace hookline::group {
namespace {

class RendezvousEpochs : public ::testing::Test {
 protected:
  RendezvousEpochs() { unsetenv("TORCHELASTIC_RESTART_COUNT"); }
  ~RendezvousEpochs() override { unsetenv("TORCHELASTIC_RESTART_COUNT"); }

  /// True if a key set through one epoch is visible through the other.
  static bool share_store(const RendezvousEpoch& one, const RendezvousEpoch& other) {
    const std::string key = "met by " + other.store()->describe();
    one.store()->set(key, "");
    return other.store()->check({key});
  }

  const std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

TEST_F(RendezvousEpochs, EachHasItsOwnStorePrefix) {
  const RendezvousEpoch first(store_, 0);
  EXPECT_TRUE(share_store(first, RendezvousEpoch(store_, 1)));
  const RendezvousEpoch second(store_, 1);
  EXPECT_FALSE(share_store(first, second));
  EXPECT_TRUE(share_store(second, RendezvousEpoch(store_, 0)));
}

TEST_F(RendezvousEpochs, MissingRankJoinsNextEpoch) {
  RendezvousEpoch failed(store_, 0);
  failed.abandon();
  const RendezvousEpoch late(store_, 1);
  EXPECT_FALSE(share_store(failed, late));
  EXPECT_TRUE(share_store(late, RendezvousEpoch(store_, 0)));
}

TEST_F(RendezvousEpochs, FailedRankRejoinsSucceededRank) {
  RendezvousEpoch failed(store_, 0);
  const RendezvousEpoch made(store_, 1);
  const RendezvousEpoch next(store_, 1);  // rank 1 starts over
  failed.abandon();
  EXPECT_TRUE(share_store(next, RendezvousEpoch(store_, 0)));
}

TEST_F(RendezvousEpochs, RestartedRanksIgnoreEarlierEpochs) {
  setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
  const RendezvousEpoch before(store_, 0);  // rank 1 exited before it joined
  setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
  const RendezvousEpoch after(store_, 1);
  EXPECT_FALSE(share_store(before, after));
  EXPECT_TRUE(share_store(after, RendezvousEpoch(store_, 0)));
}

}  // namespace
}  // namespace hookline::group
