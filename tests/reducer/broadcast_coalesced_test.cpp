// Tests broadcast_coalesced with mixed dtypes, layouts and sizes.
#include <hookline/reducer/broadcast_coalesced.hpp>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

std::vector<Tensor> mixed_tensors(ProcessGroup& group, int value) {
  std::vector<Tensor> tensors = {Tensor::full({7}, value),
                                 Tensor::full({3, 4}, value, DType::f64).slice(1, 0, 4, 2),
                                 Tensor::full({}, value, DType::i64),
                                 Tensor::full({0}, value),
                                 Tensor::full({1000}, value, DType::bf16),
                                 Tensor::full({5}, value, DType::u8),
                                 Tensor::full({100, 30}, value).slice(0, 1, 99, 3),
                                 Tensor::full({2}, value, DType::f16)};
  tensors.push_back(group.empty({5000}));
  tensors.back().fill(value);
  return tensors;
}

TEST(BroadcastCoalesced, AnyMixAnyBufferAnyRoot) {
  for (const GroupFixture& fixture : {threads_fixture(), private_threads_fixture(), shm_fixture()}) {
    fixture.spawn(3, [](ProcessGroup& group) {
      for (const std::size_t size :
           {std::size_t{1}, std::size_t{16}, std::size_t{100}, std::size_t{5000}, kBroadcastBufferBytes}) {
        for (int root = 0; root < 3; ++root) {
          const auto tensors = size == 1 ? std::vector<Tensor>{Tensor::full({9}, group.rank() == root ? 7 : 100)}
                                         : mixed_tensors(group, group.rank() == root ? 7 : 100 + group.rank());
          broadcast_coalesced(group, tensors, size, root);
          for (const Tensor& t : tensors) {
            const Tensor flat = t.contiguous().flatten();
            for (std::int64_t i = 0; i < flat.numel(); ++i) {
              ASSERT_EQ(flat.slice(0, i, i + 1).item<int>(), 7) << to_string(t) << " with buffers of " << size;
            }
          }
        }
      }
    });
  }
}

TEST(BroadcastCoalesced, DifferentTensorsRaiseMismatch) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const std::vector<Tensor> tensors = {Tensor::zeros(group.rank() == 0 ? Dims{2, 3} : Dims{3, 2})};
    EXPECT_THROW(broadcast_coalesced(group, tensors), Mismatch);
    group.barrier()->wait();
  });
}

TEST(BroadcastCoalesced, RejectsInvalidArguments) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    const std::vector<Tensor> tensors = {Tensor::zeros({2})};
    EXPECT_THROW(broadcast_coalesced(group, tensors, 0), InvalidArgument);
    EXPECT_THROW(broadcast_coalesced(group, {}, 10, 1), InvalidArgument) << "even without tensors";
    EXPECT_THROW(broadcast_coalesced(group, {tensors[0].as_read_only()}), InvalidArgument);
    broadcast_coalesced(group, {});
  });
}

}  // namespace
}  // namespace hookline::testing
