// Comparison of operation signatures.
#include "backend/op_signature.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace hookline::backend {
namespace {

TEST(OpSignatures, EqualNanFactorsMatch) {
  OpSignature call;
  call.factor = std::numeric_limits<double>::quiet_NaN();
  const OpSignature calls[] = {call, call};
  EXPECT_EQ(describe_mismatch(calls, 2), "");
}

TEST(OpSignatures, MinorityDiffers) {
  const auto differing = [](const std::vector<std::uint64_t>& counts) {
    std::vector<OpSignature> calls(counts.size());
    for (std::size_t r = 0; r < counts.size(); ++r) calls[r].count = counts[r];
    return differing_ranks(calls.data(), static_cast<int>(calls.size()));
  };
  EXPECT_EQ(differing({5, 5, 5}), std::vector<int>());
  EXPECT_EQ(differing({4, 5, 5}), std::vector{0});
  EXPECT_EQ(differing({5, 4, 5, 3}), (std::vector{1, 3}));
  EXPECT_EQ(differing({5, 4}), std::vector{1});
}

TEST(Splits, OverflowingSumIsRejected) {
  // Rank 0 sends this many bytes to itself and 8 bytes to rank 1; it expects the same from both.
  for (const std::uint64_t bytes : {UINT64_MAX, UINT64_MAX - 7, std::uint64_t{INT64_MAX}}) {
    const std::uint64_t first[] = {bytes, 8, bytes, 8};
    const std::uint64_t second[] = {8, 8, 8, 8};
    std::vector<std::uint64_t> splits;
    std::vector<int> differing;
    EXPECT_NE(read_splits({reinterpret_cast<const std::byte*>(first), reinterpret_cast<const std::byte*>(second)},
                          splits, differing),
              "")
        << bytes;
    EXPECT_EQ(differing, std::vector{0}) << bytes;
  }
}

}  // namespace
}  // namespace hookline::backend
