// Memory of the group for tensors of torch: DistributedDataParallel has its buckets there, and FSDP2 where it is told
// to.
#include <ATen/Functions.h>

#include <hookline/core/error.hpp>

#include "adapter/libtorch/backend.hpp"
#include "adapter/libtorch/errors.hpp"

namespace hookline::libtorch {

bool TorchBackend::supportsTensorAlloc(c10::DeviceIndex) { return group_->capabilities().shared_buffers; }

// Collectives work in place where the tensors of all ranks are in the group's memory, and through copies where one is
// not: so a rank that cannot have more of it takes other memory.
at::Tensor TorchBackend::allocateTensor(long size, at::TensorOptions options) {
  if (!options.device().is_cpu() || options.layout() != at::kStrided) return at::empty({size}, options);
  const auto bytes = static_cast<std::int64_t>(size) * static_cast<std::int64_t>(options.dtype().itemsize());
  return called_by_torch([&] {
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
