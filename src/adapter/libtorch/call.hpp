// A call of torch.distributed before it is a Collective: what is the same for all operations.
#pragma once

#include <optional>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "adapter/libtorch/backend.hpp"

namespace hookline::libtorch {

/// The timeout of a call; none where torch has left it to the group.
std::optional<Milliseconds> time_of(std::chrono::milliseconds timeout);

ReduceOp op_of(const c10d::ReduceOp& op, const char* operation);

/// What is the same for all operations: the tensors as torch has them, and what goes into the Collective beside them.
struct TorchBackend::Call {
  OpType type;
  const char* title;  ///< as profilers show it: "hookline:all_reduce"
  const std::vector<at::Tensor>& inputs;
  const std::vector<at::Tensor>& outputs;
  std::chrono::milliseconds timeout;
  bool async;
  std::optional<c10d::ReduceOp> op = std::nullopt;
  std::int64_t root = 0;
  int tag = 0;
  std::vector<std::int64_t> input_splits = {};
  std::vector<std::int64_t> output_splits = {};
  const std::vector<at::Tensor>* result = nullptr;  ///< what the work gives back, where that is not the outputs

  const char* name() const { return title + sizeof("hookline:") - 1; }
  /// Throws InvalidArgument for one that the tensors cannot be combined by. Only where there is an op.
  ReduceOp reduction() const;
};

}  // namespace hookline::libtorch
