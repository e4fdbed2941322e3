// The largest groups and the largest tensors.
#include <algorithm>
#include <cstring>

#include "contract/group_limits.hpp"

namespace hookline::testing {
namespace {

class GroupLimits : public GroupContract {};

TEST_P(GroupLimits, SixtyFourRanks) { GetParam().spawn(64, try_64_ranks); }

INSTANTIATE_TEST_SUITE_P(Worlds, GroupLimits,
                         ::testing::Values(threads_world(), private_threads_world(), shm_world(),
                                           memory_engine_world()),
                         [](const auto& test) { return test.param.name; });

// Sanitizers would need many times the memory and time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kLarge = std::int64_t{1} << 24;
#else
constexpr std::int64_t kLarge = std::int64_t{1} << 31;
#endif

// More than 2 GiB, which overflows 32-bit counters.
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
