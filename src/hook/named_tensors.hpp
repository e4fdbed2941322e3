// What hooks keep of each gradient, by its name.
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

using NamedTensors = std::map<std::string, Tensor>;  ///< flat, of float32

/// The name of a gradient; those that nobody named are known by their place.
std::string gradient_name(const BucketLayout& layout, std::size_t bucket, std::size_t i);

/// A view of `count` elements of a flat tensor.
Tensor part(const Tensor& flat, std::size_t begin, std::size_t count);

void save_tensors(StateWriter& to, const NamedTensors& tensors);
/// InvalidArgument where one of them is not flat, or not of float32.
NamedTensors load_tensors(StateReader& from);

}  // namespace hook
}  // namespace hookline
