// Collectives between ranks that are stepped by hand: what one of them does while another is in the middle of it.
#include "backend/embedded/exchange.hpp"

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
  ASSERT_TRUE(operation.exception()) << "it came to an end as if nothing had happened";
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
  gone.fill(0);  // its own again
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

}  // namespace
}  // namespace hookline::embedded
