// Per-gradient tensors of hooks: names, slices and serialization.
#include "hook/named_tensors.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

namespace hookline::hook {

std::string gradient_name(const BucketLayout& layout, std::size_t bucket, std::size_t i) {
  return i < layout.names.size() ? layout.names[i] : fmt::format("gradient {} of bucket {}", i, bucket);
}

Tensor flat_slice(const Tensor& flat, std::size_t begin, std::size_t count) {
  return flat.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(begin + count));
}

void save_tensors(StateWriter& writer, const TensorsByName& tensors) {
  writer.integer(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    writer.text(name);
    writer.tensor(tensor);
  }
}

TensorsByName load_tensors(StateReader& reader) {
  TensorsByName tensors;
  for (std::uint64_t left = reader.integer(); left > 0; --left) {
    const std::string name = reader.text();
    const Tensor tensor = reader.tensor();
    if (tensor.dtype() != DType::f32 || tensor.dim() != 1) {
      throw InvalidArgument(
          fmt::format("the saved state is corrupt: {}: expected flat float32 values, got {}", name, to_string(tensor)));
    }
    tensors[name] = tensor;
  }
  return tensors;
}

}  // namespace hookline::hook
