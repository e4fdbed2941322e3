// Reinterpreted views, contiguous copies, and reductions that torch's backends lack.
#include "adapter/libtorch/staged_call.hpp"

#include <cstdint>
#include <type_traits>
#include <utility>

#include <ATen/Functions.h>

#include "adapter/libtorch/tensors.hpp"
#include "backend/op_traits.hpp"

namespace hookline::libtorch {
namespace {

// Some backends check shapes of operations for which only the number of elements matters.
bool is_flat(OpType type) {
  switch (type) {
    case OpType::allgather:
    case OpType::allgather_coalesced:
    case OpType::allgather_into_tensor:
    case OpType::allgather_into_tensor_coalesced:
    case OpType::gather:
    case OpType::scatter:
    case OpType::reduce_scatter:
    case OpType::reduce_scatter_tensor:
    case OpType::reduce_scatter_tensor_coalesced:
    case OpType::alltoall: return true;
    default: return false;
  }
}

/// Booleans are reduced as bytes 0 and 1, so their sum is MAX and their product is MIN.
c10d::ReduceOp to_torch_reduce_op(ReduceOp op, bool booleans) {
  switch (op.kind()) {
    case ReduceOp::Kind::product: return booleans ? c10d::ReduceOp::MIN : c10d::ReduceOp::PRODUCT;
    case ReduceOp::Kind::min: return c10d::ReduceOp::MIN;
    case ReduceOp::Kind::max: return c10d::ReduceOp::MAX;
    case ReduceOp::Kind::band: return c10d::ReduceOp::BAND;
    case ReduceOp::Kind::bor: return c10d::ReduceOp::BOR;
    case ReduceOp::Kind::bxor: return c10d::ReduceOp::BXOR;
    case ReduceOp::Kind::sum:
    case ReduceOp::Kind::avg:  // divided afterwards: not every backend has it
    case ReduceOp::Kind::premul_sum: break;
  }
  return booleans ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
}

/// Divides as ReduceOp::avg does. Not with torch operators: on a backend thread these would start an OpenMP pool that
/// competes with the program's own.
void divide(const at::Tensor& sums, int ranks) {
  const Tensor values = view_of(sums, "avg", TensorUse::reduce, false);
  visit_dtype(values.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) {
      T* const x = values.data<T>();
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        if constexpr (std::is_integral_v<T>) x[i] = static_cast<T>(x[i] / ranks);
        else if constexpr (std::is_same_v<T, double>) x[i] /= ranks;
        else x[i] = T(static_cast<float>(x[i]) / static_cast<float>(ranks));
      }
    }
  });
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) { return a.const_data_ptr() == b.const_data_ptr(); }

}  // namespace

StagedCall::StagedCall(Operation operation, int rank, int size)
    : operation_(std::move(operation)),
      size_(size),
      reduces_(backend::is_reduction(operation_.type)),
      sends_only_((operation_.type == OpType::reduce && rank != operation_.root) ||
                  (operation_.type == OpType::broadcast && rank == operation_.root)),
      op_(to_torch_reduce_op(operation_.op, reduces_ && source_tensors(operation_).front().dtype() == DType::boolean)),
      input_splits_(operation_.input_splits),
      output_splits_(operation_.output_splits) {
  const bool scaled = reduces_ && operation_.op.kind() == ReduceOp::Kind::premul_sum;
  const bool in_place = works_in_place(operation_.type);
  for (const Tensor& t : operation_.inputs) inputs_.push_back(staged_tensor(t, true, scaled));
  for (const Tensor& t : operation_.outputs) outputs_.push_back(staged_tensor(t, in_place, reduces_ && sends_only_));
  if (scaled) {
    for (at::Tensor& t : in_place ? outputs_ : inputs_) t.mul_(operation_.op.factor());
  }
  if (operation_.type == OpType::alltoall) concat_lists();
}

/// Replaces the lists by one input and one output with splits.
void StagedCall::concat_lists() {
  for (const at::Tensor& t : inputs_) input_splits_.push_back(t.numel());
  for (const at::Tensor& t : outputs_) output_splits_.push_back(t.numel());
  inputs_ = {at::cat(inputs_)};
  outputs_ = {at::cat(outputs_)};
}

/// Returns the caller's tensor, viewed as a dtype of the same size that every backend supports.
at::Tensor StagedCall::supported_view(const Tensor& tensor) const {
  const at::Tensor own = tensor_of(tensor);
  if (reduces_ && tensor.dtype() == DType::boolean) return own.view(at::kByte);
  if (!reduces_ && tensor.dtype() == DType::i16) return own.view(at::kHalf);
  return own;
}

/// Returns the tensor to pass to the backend: the supported view itself or a copy, which contains the elements if
/// `copy_in` is set. `force_copy` forces a copy.
at::Tensor StagedCall::staged_tensor(const Tensor& tensor, bool copy_in, bool force_copy) const {
  const at::Tensor own = supported_view(tensor);
  if (backend::is_point_to_point(operation_.type) && own.numel() == 0) return at::zeros({1}, at::kByte);
  at::Tensor result = own;
  if (reduces_ && tensor.dtype() == DType::i16) {
    result = own.to(at::kInt).contiguous();
  } else if (!own.is_contiguous()) {
    result = copy_in ? own.contiguous() : at::empty(own.sizes(), own.options());
  } else if (force_copy) {
    result = own.clone();
  }
  return is_flat(operation_.type) ? result.flatten() : result;
}

void StagedCall::finish() {
  if (sends_only_) return;
  if (operation_.type == OpType::alltoall) outputs_ = outputs_[0].split_with_sizes(output_splits_);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (reduces_ && operation_.op == ReduceOp::avg) divide(outputs_[i], size_);
    const at::Tensor own = supported_view(operation_.outputs[i]);
    if (own.numel() != 0 && !same_memory(own, outputs_[i])) own.copy_(outputs_[i].view(own.sizes()));
  }
}

}  // namespace hookline::libtorch
