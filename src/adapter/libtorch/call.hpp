// The arguments of a torch.distributed call, before they become an Operation.
#pragma once

#include <optional>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "adapter/libtorch/backend.hpp"

namespace hookline::libtorch {

/// Returns the timeout of a call, or nullopt if it is unset and the group's timeout applies.
std::optional<Milliseconds> optional_timeout(std::chrono::milliseconds timeout);

/// Converts torch's ReduceOp. `operation` is for error messages.
ReduceOp to_reduce_op(const c10d::ReduceOp& op, const char* operation);

/// The arguments that all operations have in common. References are valid during the call only.
struct TorchBackend::Call {
  OpType type;
  const char* title;  ///< shown by profilers, such as "hookline:all_reduce"
  const std::vector<at::Tensor>& inputs;
  const std::vector<at::Tensor>& outputs;
  std::chrono::milliseconds timeout;
  bool async;
  std::optional<c10d::ReduceOp> op = std::nullopt;
  std::int64_t root = 0;
  int tag = 0;
  std::vector<std::int64_t> input_splits = {};
  std::vector<std::int64_t> output_splits = {};
  const std::vector<at::Tensor>* result = nullptr;  ///< the work's result; null: the outputs

  const char* name() const { return title + sizeof("hookline:") - 1; }
  /// Returns the op of a reduction. Throws InvalidArgument if the tensors do not support it. Requires `op`.
  ReduceOp reduction() const;
};

}  // namespace hookline::libtorch
