// PowerSGD plan: selects the matrices to compress, and checks options.
#include "hook/powersgd_plan.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "hook/named_tensors.hpp"

namespace hookline::hook {
namespace {

void add(PowerSGDPlan& plan, PowerSGDMatrix matrix) {
  matrix.p_offset = plan.p_size;
  matrix.q_offset = plan.q_size;
  plan.p_size += matrix.rows * matrix.rank;
  plan.q_size += matrix.columns * matrix.rank;
  plan.numel_after += (matrix.rows + matrix.columns) * matrix.rank;
  plan.matrices.push_back(std::move(matrix));
}

std::size_t square_side(std::size_t count) {
  auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  while (side * side < count) ++side;
  return side;
}

}  // namespace

PowerSGDPlan plan_matrices(const BucketLayout& layout, std::size_t bucket, const PowerSGDOptions& options) {
  PowerSGDPlan plan;
  for (std::size_t i = 0; i < layout.lengths.size(); ++i) {
    const std::size_t count = layout.lengths[i];
    const Dims& shape = layout.sizes[i];
    plan.numel_before += count;
    if (shape.size() >= 2 && count > 0) {
      const auto rows = static_cast<std::size_t>(shape[0]);
      const std::size_t columns = count / rows;
      const std::size_t rank = std::min({rows, columns, static_cast<std::size_t>(options.matrix_approximation_rank)});
      if (static_cast<double>((rows + columns) * rank) * options.min_compression_rate < static_cast<double>(count)) {
        add(plan, {gradient_name(layout, bucket, i), layout.offsets[i], count, rows, columns, rank});
        continue;
      }
    }
    plan.numel_after += count;
    plan.uncompressed.push_back({layout.offsets[i], count});
    plan.uncompressed_size += count;
  }
  return plan;
}

PowerSGDPlan plan_square(std::size_t count, std::size_t bucket, const PowerSGDOptions& options) {
  PowerSGDPlan plan;
  plan.numel_before = count;
  const std::size_t side = square_side(count);
  const std::size_t rank = std::min(side, static_cast<std::size_t>(options.matrix_approximation_rank));
  if (count > 0) add(plan, {fmt::format("bucket {}", bucket), 0, count, side, side, rank});
  return plan;
}

void check(const PowerSGDOptions& options) {
  const auto refuse = [](const char* option, const auto& value, const char* allowed) {
    throw InvalidArgument(fmt::format("PowerSGD: {}: expected {}, got {}", option, allowed, value));
  };
  if (options.matrix_approximation_rank < 1) {
    refuse("matrix_approximation_rank", options.matrix_approximation_rank, "at least 1");
  }
  if (options.start_powerSGD_iter < 0) refuse("start_powerSGD_iter", options.start_powerSGD_iter, "at least 0");
  if ((options.use_error_feedback || options.warm_start) && options.start_powerSGD_iter <= 1) {
    throw InvalidArgument(
        fmt::format("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                    "PowerSGD can only "
                    "be applied after the first two iterations in DDP. Got {}; use 2 or more, or disable both.",
                    options.start_powerSGD_iter));
  }
  if (!(options.min_compression_rate >= 0) || std::isinf(options.min_compression_rate)) {
    refuse("min_compression_rate", options.min_compression_rate, "a number of at least 0");
  }
  if (!(options.orthogonalization_epsilon >= 0) || std::isinf(options.orthogonalization_epsilon)) {
    refuse("orthogonalization_epsilon", options.orthogonalization_epsilon, "a number of at least 0");
  }
  if (options.wire != DType::f32 && options.wire != DType::f16 && options.wire != DType::bf16) {
    refuse("wire", name(options.wire), "float32, float16 or bfloat16");
  }
}

}  // namespace hookline::hook
