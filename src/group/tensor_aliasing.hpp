// Tensor aliasing: detects tensors that share memory.
#pragma once

#include <hookline/core/tensor.hpp>

namespace hookline::group {

/// True if the tensors share at least one byte of an element. Exact for every layout.
bool overlap(const Tensor& a, const Tensor& b);

/// True if two indices may refer to the same element, as with a stride of 0 or sliding windows. May report false
/// positives for unusual strides.
bool overlaps_itself(const Tensor& tensor);

/// True if both tensors are the same elements in the same order.
bool same_elements(const Tensor& a, const Tensor& b);

/// True if `candidate` is exactly slice `index` of `whole` split into `count` equal slices. A tensor that is not
/// contiguous is split along its first dimension.
bool is_slice(const Tensor& candidate, const Tensor& whole, int index, int count);

}  // namespace hookline::group
