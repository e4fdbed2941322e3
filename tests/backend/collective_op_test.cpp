// Local collectives, stepped by the test: failures while another rank is in the middle of an operation.
#include "backend/local/collective_op.hpp"

#include <atomic>
#include <functional>
#include <thread>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "backend/local/local_context.hpp"
#include "backend/threads/threads_memory.hpp"

namespace hookline::local {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kTwoChunksPerRank = 4 * kChunkBytes / sizeof(float);

void expect_rank_0_left(LocalOp& operation) {
  ASSERT_TRUE(operation.done());
  ASSERT_TRUE(operation.exception()) << "the operation succeeded";
  EXPECT_THAT([&] { std::rethrow_exception(operation.exception()); },
              ThrowsMessage<PeerLost>(HasSubstr("rank 0 left the group")));
}

class SteppedCollectives : public ::testing::Test {
 protected:
  explicit SteppedCollectives(int size = 2) : group_memory_(std::make_shared<threads::GroupMemory>(size, false)) {
    for (int r = 0; r < size; ++r) {
      auto memory = std::make_unique<threads::ThreadsMemory>(group_memory_, r);
      contexts_.push_back(std::make_shared<LocalContext>(
          std::move(memory), LocalContextOptions{.name = "test", .progress_thread = false}));
      contexts_.back()->open();
    }
  }
  ~SteppedCollectives() override {
    for (auto& context : contexts_) context->close();
  }

  LocalContext& context(int rank) { return *contexts_[static_cast<std::size_t>(rank)]; }
  Tensor shared(int rank, std::int64_t count, double value) {
    const auto memory = context(rank).memory().allocate(static_cast<std::size_t>(count) * sizeof(float));
    const Tensor tensor = Tensor::wrap(memory.get(), {count}, DType::f32, {.owner = memory});
    tensor.fill(value);
    return tensor;
  }
  std::shared_ptr<LocalOp> allreduce(int rank, const Tensor& tensor) {
    return context(rank).start({.type = OpType::allreduce, .inputs = {}, .outputs = {tensor}}, 0, Milliseconds{60'000});
  }

  const std::shared_ptr<threads::GroupMemory> group_memory_;
  std::vector<std::shared_ptr<LocalContext>> contexts_;
};

TEST_F(SteppedCollectives, InPlaceFailsIfPeerLeavesBeforeCompletion) {
  const Tensor departed_tensor = shared(0, kTwoChunksPerRank, 1);
  const auto first = allreduce(0, departed_tensor);
  const auto second = allreduce(1, shared(1, kTwoChunksPerRank, 2));
  while (context(0).drive()) {  // rank 0 reduces its slice
  }
  ASSERT_FALSE(first->done());
  context(0).close();
  departed_tensor.fill(0);  // the rank may write to its tensor again
  while (context(1).drive()) {
  }
  context(1).check_peers();
  expect_rank_0_left(*second);
}

TEST_F(SteppedCollectives, InPlaceFailsIfPeerLeavesDuringLastChunk) {
  const Tensor departed_tensor = shared(0, kTwoChunksPerRank, 1);
  const auto first = allreduce(0, departed_tensor);
  const auto second = allreduce(1, shared(1, kTwoChunksPerRank, 2));
  while (context(0).drive()) {
  }
  ASSERT_TRUE(context(1).drive());  // the second chunk of its slice; the first was reduced when the operation started
  context(0).close();
  while (context(1).drive()) {
  }
  context(1).check_peers();
  expect_rank_0_left(*second);
}

// A BlockReader that calls a function.
struct CallbackReader final : BlockReader {
  explicit CallbackReader(std::function<void()> on_read) : callback(std::move(on_read)) {}
  void read(std::span<const std::byte* const>, std::size_t) noexcept override { callback(); }
  std::function<void()> callback;
};

// On the threads backend, a failing rank waits until no peer accesses its tensors.
TEST_F(SteppedCollectives, FailingRankWaitsForPeerAccess) {
  std::atomic<bool> reading = false;
  bool failed_while_reading = false;
  std::thread failing;
  CallbackReader idle([] {});
  CallbackReader busy([&] {
    reading = true;
    failing = std::thread([&] {
      context(0).fail(std::make_exception_ptr(Aborted("fault injected by the test")));
      failed_while_reading = reading;
    });
    while (group_memory_->block(0).state != RankState::failed) std::this_thread::yield();
    for (int i = 0; i < 10'000; ++i) std::this_thread::yield();  // long enough for fail() to return without the wait
    reading = false;
  });
  const auto start = [&](int rank, CallbackReader& reader) {
    Operation operation{.type = OpType::allgather_into_tensor, .inputs = {shared(rank, 10'000, 1)}, .outputs = {}};
    operation.reader = &reader;
    return context(rank).start(std::move(operation), 0, Milliseconds{60'000});
  };
  const auto first = start(0, idle);
  const auto second = start(1, busy);
  while (context(1).drive()) {
  }
  ASSERT_TRUE(failing.joinable());
  failing.join();
  EXPECT_TRUE(first->done());
  EXPECT_FALSE(failed_while_reading) << "the operation completed while a peer was reading its tensor";
}

// The progress threads are asleep. Rank 1 sends and receives little data, rank 0 sends much.
TEST(BackgroundCollectives, ProgressWithUnequalSizes) {
  for (const OpType type : {OpType::scatter, OpType::alltoall_base}) {
    SCOPED_TRACE(name(type));
    const auto ranks = threads::make_backends(2, false);
    const auto start = [&](int rank) {
      Operation operation{.type = type, .inputs = {}, .outputs = {}};
      if (type == OpType::scatter) {
        operation.outputs = {Tensor::zeros({1'500})};
        if (rank == 0) operation.inputs = {Tensor::zeros({1'500}), Tensor::zeros({1'500})};
      } else {
        operation.inputs = {Tensor::zeros({rank == 0 ? 3'000 : 100})};
        operation.input_splits =
            rank == 0 ? std::vector<std::int64_t>{1'500, 1'500} : std::vector<std::int64_t>{50, 50};
        operation.outputs = {Tensor::zeros({1'550})};
        operation.output_splits = {1'500, 50};
      }
      return ranks[static_cast<std::size_t>(rank)]->start(std::move(operation), 0, std::chrono::seconds(20));
    };
    std::this_thread::sleep_for(Milliseconds(20));  // until the progress threads sleep
    const WorkPtr background_work = start(1);
    EXPECT_NO_THROW(start(0)->wait());
    background_work->wait();
  }
}

}  // namespace
}  // namespace hookline::local
