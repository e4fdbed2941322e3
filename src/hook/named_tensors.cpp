// Per-gradient tensors of hooks: names, slices and serialization.
#include "hook/named_tensors.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

namespace hookline::hook {

std::string gradient_name(const BucketLayout& layout, std::size_t bucket, std::size_t i) {
  return i < layout.names.size() ? layout.names[i] : fmt::format("gradient {} of bucket {}", i, bucket);
}

Tensor part(const Tensor& flat, std::size_t begin, std::size_t count) {
  return flat.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(begin + count));
}

void save_tensors(StateWriter& to, const NamedTensors& tensors) {
  to.number(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    to.text(name);
    to.tensor(tensor);
  }
}

NamedTensors load_tensors(StateReader& from) {
  NamedTensors tensors;
  for (std::uint64_t left = from.number(); left > 0; --left) {
    const std::string name = from.text();
    const Tensor tensor = from.tensor();
    if (tensor.dtype() != DType::f32 || tensor.dim() != 1) {
      throw InvalidArgument(
          fmt::format("the saved state is corrupt: {}: expected flat float32 values, got {}", name, to_string(tensor)));
    }
    tensors[name] = tensor;
  }
  return tensors;
}

}  // namespace hookline::hook
