// Row-by-row iteration over two strided layouts of the same shape, with rows as long as possible.
#pragma once

#include <cstdint>

#include <hookline/core/dims.hpp>

namespace hookline::core {

/// A shape with the strides of two tensors. Adjacent dimensions that are contiguous in both are merged.
struct StridedPair {
  Dims shape;
  Dims a;
  Dims b;

  StridedPair(const Dims& full_shape, const Dims& strides_a, const Dims& strides_b) {
    for (std::size_t i = 0; i < full_shape.size(); ++i) {
      if (full_shape[i] == 1) continue;
      const std::size_t last = shape.size() - 1;
      if (!shape.empty() && a[last] == strides_a[i] * full_shape[i] && b[last] == strides_b[i] * full_shape[i]) {
        shape[last] *= full_shape[i];
        a[last] = strides_a[i];
        b[last] = strides_b[i];
      } else {
        shape.push_back(full_shape[i]);
        a.push_back(strides_a[i]);
        b.push_back(strides_b[i]);
      }
    }
    if (shape.empty()) {  // a scalar is a row of one element
      shape.push_back(1);
      a.push_back(1);
      b.push_back(1);
    }
  }
};

/// Calls `f(offset_a, offset_b, count, step_a, step_b)` for each row; offsets and steps count elements.
template <class F>
void for_each_row(const StridedPair& layout, F&& f) {
  const std::size_t inner = layout.shape.size() - 1;
  for (std::size_t i = 0; i <= inner; ++i) {
    if (layout.shape[i] == 0) return;
  }
  Dims index(inner, 0);
  std::int64_t offset_a = 0;
  std::int64_t offset_b = 0;
  for (;;) {
    f(offset_a, offset_b, layout.shape[inner], layout.a[inner], layout.b[inner]);
    std::size_t i = inner;
    for (;;) {
      if (i == 0) return;
      --i;
      offset_a += layout.a[i];
      offset_b += layout.b[i];
      if (++index[i] < layout.shape[i]) break;
      offset_a -= layout.a[i] * layout.shape[i];
      offset_b -= layout.b[i] * layout.shape[i];
      index[i] = 0;
    }
  }
}

}  // namespace hookline::core
