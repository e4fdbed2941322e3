// Converts a call's tensors to forms that every torch.distributed backend supports.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <hookline/backend/operation.hpp>

namespace hookline::libtorch {

/// Passes supported tensors through, and copies or reinterprets the others. Works around limits of Gloo: it ignores
/// strides, has no 16-bit integers, sums booleans as bytes, overwrites the tensors of all ranks in a reduce, requires
/// equal block sizes in an alltoall, and cannot send empty messages.
class StagedCall {
 public:
  /// Makes the copies, and applies the factor of premul_sum; in place for in-place operations.
  StagedCall(Operation operation, int rank, int size);

  const Operation& operation() const { return operation_; }
  c10d::ReduceOp op() const { return op_; }
  std::vector<at::Tensor>& inputs() { return inputs_; }
  std::vector<at::Tensor>& outputs() { return outputs_; }
  std::vector<std::int64_t>& input_splits() { return input_splits_; }
  std::vector<std::int64_t>& output_splits() { return output_splits_; }

  /// Copies the results to the caller's tensors. Call after the operation has succeeded.
  void finish();

 private:
  at::Tensor supported_view(const Tensor& tensor) const;
  at::Tensor staged_tensor(const Tensor& tensor, bool copy_in, bool force_copy) const;
  void concat_lists();

  const Operation operation_;  // keeps the tensors alive
  const int size_;
  const bool reduces_;
  const bool sends_only_;  ///< this rank receives no result
  c10d::ReduceOp op_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::vector<std::int64_t> input_splits_;
  std::vector<std::int64_t> output_splits_;
};

}  // namespace hookline::libtorch
