// Overlap of strided tensors: compares byte ranges, then strides, and finally the elements themselves.
#include "group/tensor_aliasing.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "core/strided.hpp"

namespace hookline::group {
namespace {

// Returns the half-open byte range of the tensor. Strides may be negative.
std::pair<std::intptr_t, std::intptr_t> byte_range(const Tensor& t) {
  std::intptr_t low = reinterpret_cast<std::intptr_t>(t.bytes());
  std::intptr_t high = low + static_cast<std::intptr_t>(t.itemsize());
  for (std::size_t i = 0; i < t.dim(); ++i) {
    const std::int64_t reach = (t.shape()[i] - 1) * t.strides()[i] * static_cast<std::int64_t>(t.itemsize());
    (reach < 0 ? low : high) += reach;
  }
  return {low, high};
}

// Returns stride and extent in bytes of each dimension with more than one element.
std::vector<std::pair<std::int64_t, std::int64_t>> strides_and_extents(const Tensor& t) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (std::size_t i = 0; i < t.dim(); ++i) {
    const std::int64_t stride = std::abs(t.strides()[i]) * static_cast<std::int64_t>(t.itemsize());
    if (t.shape()[i] > 1) result.emplace_back(stride, (t.shape()[i] - 1) * stride);
  }
  return result;
}

// Returns the bytes that the tensor spans modulo `step`: dimensions whose stride is a multiple of `step` drop out.
std::int64_t span_within(const Tensor& t, std::int64_t step) {
  auto span = static_cast<std::int64_t>(t.itemsize());
  for (const auto& [stride, reach] : strides_and_extents(t)) span += stride % step == 0 ? 0 : reach;
  return span;
}

// True if, for some common stride, the tensors occupy disjoint ranges modulo that stride, as columns of one matrix do.
bool are_interleaved(const Tensor& a, const Tensor& b, std::int64_t distance) {
  std::vector<std::int64_t> steps = {0};
  for (const Tensor* t : {&a, &b}) {
    for (const auto& [stride, reach] : strides_and_extents(*t)) {
      steps.push_back(stride);
      steps[0] = std::gcd(steps[0], stride);
    }
  }
  return std::any_of(steps.begin(), steps.end(), [&](std::int64_t step) {
    if (step == 0) return false;
    const std::int64_t rest = (distance % step + step) % step;
    return rest >= span_within(a, step) && step - rest >= span_within(b, step);
  });
}

template <class F>
void for_each_address(const Tensor& t, F f) {
  const auto size = static_cast<std::int64_t>(t.itemsize());
  const auto base = reinterpret_cast<std::intptr_t>(t.bytes());
  core::for_each_row(core::StridedPair(t.shape(), t.strides(), t.strides()),
                     [&](std::int64_t at, std::int64_t, std::int64_t count, std::int64_t step, std::int64_t) {
                       for (std::int64_t i = 0; i < count; ++i) f(base + (at + i * step) * size);
                     });
}

// Compares element by element. A strided tensor is copied anyway, so the extra cost is small.
bool share_byte(const Tensor& a, const Tensor& b, std::intptr_t low, std::intptr_t high) {
  std::vector<bool> taken(static_cast<std::size_t>(high - low));
  const auto within = [&](const Tensor& t, auto f) {
    for_each_address(t, [&](std::intptr_t at) {
      const std::intptr_t end = std::min(at + static_cast<std::intptr_t>(t.itemsize()), high);
      for (std::intptr_t byte = std::max(at, low); byte < end; ++byte) f(static_cast<std::size_t>(byte - low));
    });
  };
  within(a, [&](std::size_t byte) { taken[byte] = true; });
  bool found = false;
  within(b, [&](std::size_t byte) { found = found || taken[byte]; });
  return found;
}

}  // namespace

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const auto [low_a, high_a] = byte_range(a);
  const auto [low_b, high_b] = byte_range(b);
  if (high_a <= low_b || high_b <= low_a) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  if (are_interleaved(a, b, low_b - low_a)) return false;
  return share_byte(a, b, std::max(low_a, low_b), std::min(high_a, high_b));
}

bool overlaps_itself(const Tensor& tensor) {
  if (tensor.is_contiguous() || tensor.numel() == 0) return false;
  auto steps = strides_and_extents(tensor);
  std::sort(steps.begin(), steps.end());
  // Invariant of slicing, transposing and reshaping: each stride exceeds the extent of all smaller strides.
  std::int64_t within = 0;
  for (const auto& [step, reach] : steps) {
    if (step <= within || step == 0) return true;
    within += reach;
  }
  return false;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.bytes() != b.bytes() || a.numel() != b.numel() || a.dtype() != b.dtype()) return false;
  return (a.is_contiguous() && b.is_contiguous()) || (a.shape() == b.shape() && a.strides() == b.strides());
}

bool is_slice(const Tensor& candidate, const Tensor& whole, int index, int count) {
  const Tensor rows_view = whole.is_contiguous() ? whole.flatten() : whole;
  const std::int64_t rows = rows_view.shape()[0] / count;
  if (rows_view.shape()[0] % count != 0) return false;
  return same_elements(candidate, rows_view.slice(0, index * rows, (index + 1) * rows));
}

}  // namespace hookline::group
