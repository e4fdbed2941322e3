// Whether tensors share elements: what a collective must not write to while it reads from there.
#pragma once

#include <hookline/core/tensor.hpp>

namespace hookline::group {

/// Whether an element of the one lies in the memory of an element of the other. Exact for every layout.
bool overlap(const Tensor& a, const Tensor& b);

/// Whether two indices may lead to one element, as in a row that is repeated by a stride of 0, or in sliding windows.
bool overlaps_itself(const Tensor& tensor);

/// True if both tensors are the same elements in the same order.
bool same_elements(const Tensor& a, const Tensor& b);

/// True if `part` is exactly slice `index` of `whole` cut into `count` equal slices. False for a whole that is not
/// contiguous and has no such slices along its first dimension.
bool is_slice(const Tensor& part, const Tensor& whole, int index, int count);

}  // namespace hookline::group
