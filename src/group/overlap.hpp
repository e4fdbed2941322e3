// Whether tensors share elements: what a collective must not write to while it reads from there.
#pragma once

#include <hookline/core/tensor.hpp>

namespace hookline::group {

/// Whether an element of the one lies in the memory of an element of the other. Exact for every layout.
bool overlap(const Tensor& a, const Tensor& b);

/// Whether two indices may lead to one element, as in a row that is repeated by a stride of 0, or in sliding windows.
bool overlaps_itself(const Tensor& tensor);

}  // namespace hookline::group
