// Tests init_process_group: rendezvous through a store, and invalid arguments.
#include <hookline/group/init.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/memory_store.hpp>

namespace hookline {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(InitProcessGroup, SingleRank) {
  const auto group = init_process_group({.rank = 0, .world_size = 1, .store = std::make_shared<MemoryStore>()});
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->backend_name(), "shm");
  const Tensor t = Tensor::full({3}, 2);
  group->allreduce(t, {.op = ReduceOp::avg})->wait();
  EXPECT_EQ(t.data<float>()[2], 2.0f);
}

TEST(InitProcessGroup, TimeoutNamesMissingRank) {
  EXPECT_THAT(
      [] {
        init_process_group(
            {.rank = 0, .world_size = 2, .timeout = Milliseconds(30), .store = std::make_shared<MemoryStore>()});
      },
      ThrowsMessage<Timeout>(HasSubstr("rank 1 did not join")));
}

TEST(InitProcessGroup, RepeatedInitLeavesNoKeys) {
  const auto store = std::make_shared<MemoryStore>();
  const auto keys_after_round = [&] {
    const auto join = [&](int rank) {
      return init_process_group({.rank = rank, .world_size = 3, .timeout = std::chrono::seconds(60), .store = store});
    };
    std::vector<std::future<std::shared_ptr<ProcessGroup>>> ranks;
    for (int r = 0; r < 3; ++r) ranks.push_back(std::async(std::launch::async, join, r));
    std::vector<std::shared_ptr<ProcessGroup>> groups;
    for (auto& rank : ranks) groups.push_back(rank.get());
    return store->num_keys();
  };
  keys_after_round();
  const std::int64_t keys = keys_after_round();
  for (int round = 0; round < 5; ++round) EXPECT_EQ(keys_after_round(), keys);
}

TEST(InitProcessGroup, LeavesNoMoreKeysRoundByRoundOnOneRank) {
  const auto store = std::make_shared<MemoryStore>();
  const auto keys_after_round = [&] {
    init_process_group({.rank = 0, .world_size = 1, .store = store});
    return store->num_keys();
  };
  keys_after_round();
  const std::int64_t keys = keys_after_round();
  for (int round = 0; round < 5; ++round) EXPECT_EQ(keys_after_round(), keys);
}

TEST(InitProcessGroup, RejectsInvalidArguments) {
  const auto store = std::make_shared<MemoryStore>();
  EXPECT_THAT([] { init_process_group({.backend = "nccl"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected one of shm")));
  EXPECT_THROW(init_process_group({.store = store}), InvalidArgument);
  EXPECT_THROW(make_backend("shm", {.rank = 0, .size = 1}), InvalidArgument) << "without a store";
  EXPECT_THROW(init_process_group({.rank = 2, .world_size = 2, .store = store}), InvalidArgument);
  for (const int size : {-1, 0, kMaxWorldSize + 1, std::numeric_limits<int>::max()}) {
    EXPECT_THROW(init_process_group({.rank = 0, .world_size = size, .store = store}), InvalidArgument) << size;
  }
  EXPECT_THROW(init_process_group({.backend = "shm", .rank = 0, .world_size = 513, .store = store}), InvalidArgument);
  EXPECT_THROW(init_process_group({.rank = 0, .world_size = 1, .timeout = Milliseconds(0), .store = store}),
               InvalidArgument);
}

}  // namespace
}  // namespace hookline
