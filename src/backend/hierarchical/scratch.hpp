// Scratch memory that the operations of one lane reuse.
#pragma once

#include <hookline/backend/backend.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline::hierarchical {

/// Buffers that grow on demand and never shrink.
class Scratch {
 public:
  /// Returns `count` elements in the host's shared memory.
  Tensor shared(Backend& intra_host, std::size_t count, DType dtype) {
    const std::size_t bytes = count * size_of(dtype);
    if (bytes > bytes_) {
      memory_ = intra_host.allocate(bytes);
      bytes_ = bytes;
    }
    return Tensor::wrap(memory_.get(), {static_cast<std::int64_t>(count)}, dtype, {.owner = memory_});
  }

  /// Returns private memory for the header exchange.
  Tensor slots(std::size_t bytes) {
    if (slots_.nbytes() < bytes) slots_ = Tensor::zeros({static_cast<std::int64_t>(bytes)}, DType::u8);
    return slots_;
  }

 private:
  std::shared_ptr<void> memory_;
  std::size_t bytes_ = 0;
  Tensor slots_ = Tensor::empty({0}, DType::u8);
};

}  // namespace hookline::hierarchical
