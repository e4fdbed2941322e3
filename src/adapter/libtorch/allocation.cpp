// Allocates torch tensors in the group's memory, for the buckets of DistributedDataParallel and, on request, FSDP2.
#include <ATen/Functions.h>

#include <hookline/core/error.hpp>

#include "adapter/libtorch/backend.hpp"
#include "adapter/libtorch/errors.hpp"

namespace hookline::libtorch {

bool TorchBackend::supportsTensorAlloc(c10::DeviceIndex) { return group_->capabilities().shared_buffers; }

// Falls back to ordinary memory when the group's memory is exhausted: a collective is zero-copy only if the tensors of
// all ranks are in the group's memory, but correct in any case.
at::Tensor TorchBackend::allocateTensor(long size, at::TensorOptions options) {
  if (!options.device().is_cpu() || options.layout() != at::kStrided) return at::empty({size}, options);
  const auto bytes = static_cast<std::int64_t>(size) * static_cast<std::int64_t>(options.dtype().itemsize());
  return with_torch_errors([&] {
    Tensor memory;
    try {
      memory = group_->empty({bytes}, DType::u8);
    } catch (const ResourceError&) {
      return at::empty({size}, options);
    }
    std::byte* const start = memory.mutable_bytes();
    at::Tensor made = at::from_blob(start, {size}, [kept = std::move(memory)](void*) {}, options.requires_grad(false));
    return made.set_requires_grad(options.requires_grad());
  });
}

}  // namespace hookline::libtorch
