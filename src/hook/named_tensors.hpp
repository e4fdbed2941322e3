// Per-gradient tensors of hooks, by name.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

class StateReader;
class StateWriter;

namespace hook {

using TensorsByName = std::map<std::string, Tensor>;  ///< flat float32 tensors

/// Returns the name of a gradient, or a name made from its position if the bucket has no names.
std::string gradient_name(const BucketLayout& layout, std::size_t bucket, std::size_t i);

/// Returns a view of `count` elements of a flat tensor.
Tensor flat_slice(const Tensor& flat, std::size_t begin, std::size_t count);

void save_tensors(StateWriter& writer, const TensorsByName& tensors);
/// Throws InvalidArgument if a tensor is not flat or not float32.
TensorsByName load_tensors(StateReader& reader);

}  // namespace hook
}  // namespace hookline
