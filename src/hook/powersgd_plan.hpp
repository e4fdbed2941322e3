// PowerSGD plan: the matrices of a bucket and the offsets of their factors. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/hook/powersgd.hpp>

#include "kernel/low_rank.hpp"

namespace hookline::hook {

/// A matrix in a bucket. If a whole bucket is one square matrix, its last rows may be missing and one may be partial;
/// missing elements are zero.
struct PowerSGDMatrix {
  std::string name;
  std::size_t offset = 0;  ///< of the first element in the bucket
  std::size_t count = 0;   ///< number of present elements
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
  std::size_t p_offset = 0;  ///< offsets of its factors
  std::size_t q_offset = 0;

  /// Returns the shape of the complete rows.
  kernel::LowRankShape full_rows() const { return {count / columns, columns, rank, rows, columns}; }
  /// Returns the shape of the partial row after them; it has no rows if there is none.
  kernel::LowRankShape partial_row() const { return {count % columns ? 1U : 0U, count % columns, rank, rows, columns}; }
};

/// A gradient that is sent uncompressed.
struct UncompressedSlice {
  std::size_t offset = 0;
  std::size_t count = 0;
};

struct PowerSGDPlan {
  std::vector<PowerSGDMatrix> matrices;
  std::vector<UncompressedSlice> uncompressed;
  std::size_t uncompressed_size = 0;
  std::size_t p_size = 0;
  std::size_t q_size = 0;
  std::uint64_t numel_before = 0;  ///< number of elements, for the statistics
  std::uint64_t numel_after = 0;
};

PowerSGDPlan plan_matrices(const BucketLayout& layout, std::size_t bucket, const PowerSGDOptions& options);

/// Plans a bucket of `count` elements as one square matrix.
PowerSGDPlan plan_square(std::size_t count, std::size_t bucket, const PowerSGDOptions& options);

/// Throws InvalidArgument for options out of range.
void check(const PowerSGDOptions& options);

}  // namespace hookline::hook
