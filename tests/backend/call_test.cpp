// Comparing what the ranks call.
#include "backend/call.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace hookline::backend {
namespace {

TEST(Calls, WithTheSameNanAreTheSame) {
  Call call;
  call.factor = std::numeric_limits<double>::quiet_NaN();
  const Call calls[] = {call, call};
  EXPECT_EQ(difference(calls, 2), "");
}

TEST(Splits, WhoseSumIsNoSizeAreRefused) {
  // Rank 0 says that it gives itself so much, and 8 bytes to rank 1: what it takes from both, too.
  for (const std::uint64_t much : {UINT64_MAX, UINT64_MAX - 7, std::uint64_t{INT64_MAX}}) {
    const std::uint64_t first[] = {much, 8, much, 8};
    const std::uint64_t second[] = {8, 8, 8, 8};
    std::vector<std::uint64_t> splits;
    EXPECT_NE(
        read_splits({reinterpret_cast<const std::byte*>(first), reinterpret_cast<const std::byte*>(second)}, splits),
        "")
        << much;
  }
}

}  // namespace
}  // namespace hookline::backend
