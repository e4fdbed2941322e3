// What of a bucket PowerSGD compresses, and where the factors lie: arithmetic alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/hook/powersgd.hpp>

#include "kernel/low_rank.hpp"

namespace hookline::hook {

/// A matrix in a bucket. Of the square of a whole bucket the last rows may be missing, and one cut short: they are
/// zero.
struct PowerSGDMatrix {
  std::string name;
  std::size_t offset = 0;  ///< in the bucket
  std::size_t count = 0;   ///< elements that are there
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
  std::size_t p = 0;  ///< where its factors begin
  std::size_t q = 0;

  /// The rows that are there in full.
  kernel::LowRankShape whole() const { return {count / columns, columns, rank, rows, columns}; }
  /// The row that is cut short, where there is one; it begins behind the others.
  kernel::LowRankShape cut() const { return {count % columns ? 1U : 0U, count % columns, rank, rows, columns}; }
};

/// A gradient that is sent as it is.
struct PowerSGDPiece {
  std::size_t offset = 0;
  std::size_t count = 0;
};

struct PowerSGDPlan {
  std::vector<PowerSGDMatrix> matrices;
  std::vector<PowerSGDPiece> rest;
  std::size_t rest_size = 0;
  std::size_t p_size = 0;
  std::size_t q_size = 0;
  std::uint64_t before = 0;  ///< elements, for the statistics
  std::uint64_t after = 0;
};

PowerSGDPlan plan_matrices(const BucketLayout& layout, std::size_t bucket, const PowerSGDOptions& options);

/// The bucket of `count` elements as one square.
PowerSGDPlan plan_square(std::size_t count, std::size_t bucket, const PowerSGDOptions& options);

/// Throws InvalidArgument for options out of range, saying what is allowed.
void check(const PowerSGDOptions& options);

}  // namespace hookline::hook
