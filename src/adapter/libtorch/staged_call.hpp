// A call's tensors as every process group of torch.distributed takes them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <hookline/backend/collective.hpp>

namespace hookline::libtorch {

/// Tensors that all backends take are handed on as they are. The others go through copies, or are seen as another type:
/// Gloo reads and writes as if every tensor lay in one piece, has no 16-bit integers, adds booleans up as bytes, writes
/// to the tensors of all ranks in a reduce, wants parts of one size in an alltoall, and has no messages without bytes.
class StagedCall {
 public:
  /// Copies what must be, and multiplies by what premul_sum multiplies by: in place where the operation is.
  StagedCall(Collective collective, int rank, int size);

  const Collective& asked() const { return asked_; }
  c10d::ReduceOp op() const { return op_; }
  std::vector<at::Tensor>& inputs() { return inputs_; }
  std::vector<at::Tensor>& outputs() { return outputs_; }
  std::vector<std::int64_t>& input_splits() { return input_splits_; }
  std::vector<std::int64_t>& output_splits() { return output_splits_; }

  /// To be called when the operation has succeeded: leaves what it gave in the caller's tensors.
  void end();

 private:
  at::Tensor seen(const Tensor& tensor) const;
  at::Tensor given(const Tensor& tensor, bool read, bool apart) const;
  void join_lists();

  const Collective asked_;  // with the tensors, which live until the end
  const int size_;
  const bool reduces_;
  const bool gives_only_;  ///< this rank gets no result
  c10d::ReduceOp op_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::vector<std::int64_t> input_splits_;
  std::vector<std::int64_t> output_splits_;
};

}  // namespace hookline::libtorch
