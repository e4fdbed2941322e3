// The largest groups and the largest calls.
#include <algorithm>
#include <cstring>

#include "contract/group_contract.hpp"

namespace hookline::testing {
namespace {

class GroupLimits : public GroupContract {};

TEST_P(GroupLimits, SixtyFourRanks) {
  GetParam().spawn(64, [](ProcessGroup& group) {
    for (const Layout layout : {Layout::plain, Layout::shared}) {
      for (const std::int64_t count : {std::int64_t{5}, kChunk / 4 + 1}) {
        const Tensor t = make(group, count, DType::f32, layout);
        fill(t, group.rank());
        group.allreduce(t)->wait();
        expect(t, expected_reduction(t, ReduceOp::sum, 64), "allreduce");
      }
    }
    const Tensor own = Tensor::full({3}, group.rank());
    const Tensor all = Tensor::zeros({64 * 3});
    group.allgather_into_tensor(all, own)->wait();
    for (int r = 0; r < 64; ++r) EXPECT_EQ(all.data<float>()[3 * r + 2], static_cast<float>(r));
    const WorkPtr sent = group.send(own, (group.rank() + 1) % 64);
    const Tensor received = Tensor::zeros({3});
    group.recv(received, (group.rank() + 63) % 64)->wait();
    EXPECT_EQ(received.data<float>()[0], static_cast<float>((group.rank() + 63) % 64));
    sent->wait();
    group.barrier()->wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, GroupLimits,
                         ::testing::Values(threads_world(), private_threads_world(), shm_world(),
                                           memory_engine_world()),
                         [](const auto& test) { return test.param.name; });

// Sanitizers would need many times the memory and the time, and look for other mistakes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kLarge = std::int64_t{1} << 24;
#else
constexpr std::int64_t kLarge = std::int64_t{1} << 31;
#endif

// Bytes, as more than 2 GiB of them go wrong wherever something counts in 32 bits.
void sum_more_than_two_gibibytes(ProcessGroup& group, Layout layout) {
  constexpr std::int64_t kCount = kLarge + 4099;
  const Tensor t = make(group, kCount, DType::u8, layout);
  std::uint8_t* const data = t.data<std::uint8_t>();
  std::memset(data, 0, kCount);
  const std::vector<std::int64_t> places = {0, kCount / 2 - 1, kCount / 2, kLarge - 1, kLarge, kCount - 1};
  for (const std::int64_t i : places) data[i] = static_cast<std::uint8_t>(i % 50 + group.rank() + 1);
  group.allreduce(t)->wait();
  for (const std::int64_t i : places) EXPECT_EQ(data[i], 2 * (i % 50) + 3) << i;
  EXPECT_EQ(std::count(data, data + kCount, 0), kCount - 6);
}

TEST(LargeCalls, InPlaceBetweenProcesses) {
  shm_world().spawn(2, [](ProcessGroup& group) { sum_more_than_two_gibibytes(group, Layout::shared); });
}

TEST(LargeCalls, InChunksBetweenThreads) {
  private_threads_world().spawn(2, [](ProcessGroup& group) { sum_more_than_two_gibibytes(group, Layout::plain); });
}

}  // namespace
}  // namespace hookline::testing
