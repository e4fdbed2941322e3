// Local collectives, stepped by the test: failures while another rank is in the middle of an operation.
#include "backend/embedded/exchange.hpp"

#include <atomic>
#include <functional>
#include <thread>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "backend/embedded/engine.hpp"
#include "backend/threads/threads_memory.hpp"

namespace hookline::embedded {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kTwoChunksEach = 4 * kChunkBytes / sizeof(float);

void expect_that_rank_0_left(Pending& operation) {
  ASSERT_TRUE(operation.over());
  ASSERT_TRUE(operation.exception()) << "the operation succeeded";
  EXPECT_THAT([&] { std::rethrow_exception(operation.exception()); },
              ThrowsMessage<PeerLost>(HasSubstr("rank 0 left the group")));
}

class Exchanges : public ::testing::Test {
 protected:
  explicit Exchanges(int size = 2) : world_(std::make_shared<threads::World>(size, false)) {
    for (int r = 0; r < size; ++r) {
      auto memory = std::make_unique<threads::ThreadsMemory>(world_, r);
      engines_.push_back(
          std::make_shared<Engine>(std::move(memory), EngineOptions{.name = "test", .progress_thread = false}));
      engines_.back()->open();
    }
  }
  ~Exchanges() override {
    for (auto& engine : engines_) engine->close();
  }

  Engine& engine(int rank) { return *engines_[static_cast<std::size_t>(rank)]; }
  Tensor shared(int rank, std::int64_t count, double value) {
    const auto memory = engine(rank).memory().allocate(static_cast<std::size_t>(count) * sizeof(float));
    const Tensor tensor = Tensor::wrap(memory.get(), {count}, DType::f32, {.owner = memory});
    tensor.fill(value);
    return tensor;
  }
  std::shared_ptr<Pending> allreduce(int rank, const Tensor& tensor) {
    return engine(rank).start({.type = OpType::allreduce, .inputs = {}, .outputs = {tensor}}, 0, Milliseconds{60'000});
  }

  const std::shared_ptr<threads::World> world_;
  std::vector<std::shared_ptr<Engine>> engines_;
};

TEST_F(Exchanges, InPlaceFailWhereARankLeavesBeforeAllAreThrough) {
  const Tensor gone = shared(0, kTwoChunksEach, 1);
  const auto first = allreduce(0, gone);
  const auto second = allreduce(1, shared(1, kTwoChunksEach, 2));
  while (engine(0).drive()) {  // its share
  }
  ASSERT_FALSE(first->over());
  engine(0).close();
  gone.fill(0);  // the rank may write to its tensor again
  while (engine(1).drive()) {
  }
  engine(1).look_around();
  expect_that_rank_0_left(*second);
}

TEST_F(Exchanges, InPlaceFailWhereARankLeavesDuringTheLastChunk) {
  const Tensor gone = shared(0, kTwoChunksEach, 1);
  const auto first = allreduce(0, gone);
  const auto second = allreduce(1, shared(1, kTwoChunksEach, 2));
  while (engine(0).drive()) {
  }
  ASSERT_TRUE(engine(1).drive());  // the second chunk of its share; the first was done when it started
  engine(0).close();
  while (engine(1).drive()) {
  }
  engine(1).look_around();
  expect_that_rank_0_left(*second);
}

// A BlockReader that calls a function.
struct Reader final : BlockReader {
  explicit Reader(std::function<void()> what) : body(std::move(what)) {}
  void read(std::span<const std::byte* const>, std::size_t) noexcept override { body(); }
  std::function<void()> body;
};

// On the threads backend, a failing rank waits until no peer accesses its tensors.
TEST_F(Exchanges, AFailingRankEndsWhenItsPeersHaveTakenTheirHandsOffItsTensors) {
  std::atomic<bool> at_work = false;
  bool was_at_work = false;
  std::thread failing;
  Reader idle([] {});
  Reader busy([&] {
    at_work = true;
    failing = std::thread([&] {
      engine(0).fail(std::make_exception_ptr(Aborted("fault injected by the test")));
      was_at_work = at_work;
    });
    while (world_->block(0).standing != Standing::gave_up) std::this_thread::yield();
    for (int i = 0; i < 10'000; ++i) std::this_thread::yield();  // long enough for fail() to return without the wait
    at_work = false;
  });
  const auto start = [&](int rank, Reader& reader) {
    Collective what{.type = OpType::allgather_into_tensor, .inputs = {shared(rank, 10'000, 1)}, .outputs = {}};
    what.reader = &reader;
    return engine(rank).start(std::move(what), 0, Milliseconds{60'000});
  };
  const auto first = start(0, idle);
  const auto second = start(1, busy);
  while (engine(1).drive()) {
  }
  ASSERT_TRUE(failing.joinable());
  failing.join();
  EXPECT_TRUE(first->over());
  EXPECT_FALSE(was_at_work) << "its operation was over while a peer was reading its tensor";
}

// The progress threads are asleep. Rank 1 sends and receives little data, rank 0 sends much.
TEST(ExchangesInTheBackground, GetOnWhereAnotherRankGivesMore) {
  for (const OpType type : {OpType::scatter, OpType::alltoall_base}) {
    SCOPED_TRACE(name(type));
    const auto ranks = threads::make_backends(2, false);
    const auto start = [&](int rank) {
      Collective what{.type = type, .inputs = {}, .outputs = {}};
      if (type == OpType::scatter) {
        what.outputs = {Tensor::zeros({1'500})};
        if (rank == 0) what.inputs = {Tensor::zeros({1'500}), Tensor::zeros({1'500})};
      } else {
        what.inputs = {Tensor::zeros({rank == 0 ? 3'000 : 100})};
        what.input_splits = rank == 0 ? std::vector<std::int64_t>{1'500, 1'500} : std::vector<std::int64_t>{50, 50};
        what.outputs = {Tensor::zeros({1'550})};
        what.output_splits = {1'500, 50};
      }
      return ranks[static_cast<std::size_t>(rank)]->start(std::move(what), 0, std::chrono::seconds(20));
    };
    std::this_thread::sleep_for(Milliseconds(20));  // until the progress threads sleep
    const WorkPtr nobody_waits = start(1);
    EXPECT_NO_THROW(start(0)->wait());
    nobody_waits->wait();
  }
}

}  // namespace
}  // namespace hookline::embedded
