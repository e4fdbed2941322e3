// Divides the tensors of collectives into blocks.
#include "backend/parts.hpp"

namespace hookline::backend {
namespace {

// Returns the contiguous memory of a tensor in this operation: its own, or that of a staged copy.
std::byte* travelling(const Tensor& tensor, bool written, Parts& parts) {
  if (tensor.is_contiguous()) return const_cast<std::byte*>(tensor.bytes());
  for (const auto& [original, copy, _] : parts.copied) {
    if (original.bytes() == tensor.bytes() && original.strides() == tensor.strides() &&
        original.shape() == tensor.shape()) {
      return copy.mutable_bytes();
    }
  }
  const Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
  // The root of a broadcast and the non-root ranks of a reduce may pass read-only tensors.
  parts.copied.push_back({tensor, copy, written && !tensor.read_only()});
  return copy.mutable_bytes();
}

// Builds the blocks of the inputs or of the outputs.
class Side {
 public:
  Side(const std::vector<Tensor>& tensors, bool written, std::size_t ranks, Parts& parts)
      : tensors_(tensors), written_(written), ranks_(ranks), parts_(parts) {}

  bool empty() const { return tensors_.empty(); }

  // One block of all tensors, concatenated.
  void whole(Blocks& blocks) const {
    blocks.start(1);
    for (const Tensor& t : tensors_) blocks[0].append(memory_of(t), t.nbytes());
  }

  // One block per rank, from consecutive lists of equal length.
  void lists(Blocks& blocks) const {
    blocks.start(ranks_);
    const std::size_t each = tensors_.size() / ranks_;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      blocks[i / each].append(memory_of(tensors_[i]), tensors_[i].nbytes());
    }
  }

  // One block per rank, from equal slices of each tensor.
  void slices(Blocks& blocks) const {
    blocks.start(ranks_);
    for (const Tensor& t : tensors_) {
      std::byte* const memory = memory_of(t);
      const std::size_t bytes = t.nbytes() / ranks_;
      for (std::size_t r = 0; r < ranks_; ++r) blocks[r].append(memory + r * bytes, bytes);
    }
  }

  // One block per rank, from the given numbers of rows of one tensor.
  void rows(const std::vector<std::int64_t>& splits, Blocks& blocks) const {
    if (splits.empty()) return slices(blocks);
    blocks.start(ranks_);
    const Tensor& t = tensors_[0];
    const std::int64_t height = t.dim() > 0 ? t.shape()[0] : 1;
    const std::size_t row = height > 0 ? t.nbytes() / static_cast<std::size_t>(height) : 0;
    std::byte* at = memory_of(t);
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::size_t bytes = static_cast<std::size_t>(splits[r]) * row;
      blocks[r].append(at, bytes);
      at += bytes;
    }
  }

 private:
  std::byte* memory_of(const Tensor& tensor) const { return travelling(tensor, written_, parts_); }

  const std::vector<Tensor>& tensors_;
  const bool written_;
  const std::size_t ranks_;
  Parts& parts_;
};

}  // namespace

Motion motion_of(OpType type) noexcept {
  switch (type) {
    case OpType::allreduce:
    case OpType::allreduce_coalesced: return Motion::allreduce;
    case OpType::reduce: return Motion::reduce;
    case OpType::broadcast: return Motion::broadcast;
    case OpType::allgather:
    case OpType::allgather_into_tensor:
    case OpType::allgather_coalesced:
    case OpType::allgather_into_tensor_coalesced: return Motion::allgather;
    case OpType::gather: return Motion::gather;
    case OpType::scatter: return Motion::scatter;
    case OpType::reduce_scatter:
    case OpType::reduce_scatter_tensor:
    case OpType::reduce_scatter_tensor_coalesced: return Motion::reduce_scatter;
    case OpType::alltoall:
    case OpType::alltoall_base: return Motion::alltoall;
    case OpType::send:
    case OpType::recv:
    case OpType::recv_anysource:
    case OpType::barrier:
    case OpType::monitored_barrier: break;
  }
  return Motion::none;
}

bool reduces(Motion motion) noexcept {
  return motion == Motion::allreduce || motion == Motion::reduce || motion == Motion::reduce_scatter;
}

bool is_source(Motion motion, int rank, int root) noexcept {
  return (motion != Motion::broadcast && motion != Motion::scatter) || rank == root;
}

bool gives(Motion motion, int source, int target, int root) noexcept {
  switch (motion) {
    case Motion::broadcast: return source == root && target != root;
    case Motion::scatter: return source == root;
    case Motion::gather: return target == root;
    case Motion::none: return false;
    default: return true;
  }
}

bool has_block_per_rank(Motion motion) noexcept {
  return motion == Motion::reduce_scatter || motion == Motion::scatter || motion == Motion::alltoall;
}

Parts cut(const Collective& collective, int rank, int size) {
  Parts parts;
  parts.motion = motion_of(collective.type);
  if (parts.motion == Motion::none) return parts;
  const auto ranks = static_cast<std::size_t>(size);
  parts.dtype = (collective.inputs.empty() ? collective.outputs : collective.inputs)[0].dtype();

  // Outputs first: an input that is also an output shares its staged copy.
  const Side outputs(collective.outputs, true, ranks, parts);
  const Side inputs(collective.inputs, false, ranks, parts);

  switch (collective.type) {
    case OpType::allreduce:
    case OpType::allreduce_coalesced:
    case OpType::reduce:
    case OpType::broadcast:
      outputs.whole(parts.take);
      parts.give = parts.take;
      break;
    case OpType::allgather_into_tensor:
    case OpType::allgather_into_tensor_coalesced:
      outputs.slices(parts.take);
      inputs.whole(parts.give);
      break;
    case OpType::reduce_scatter_tensor:
    case OpType::reduce_scatter_tensor_coalesced:
      outputs.whole(parts.take);
      inputs.slices(parts.give);
      break;
    case OpType::alltoall_base:
      outputs.rows(collective.output_splits, parts.take);
      inputs.rows(collective.input_splits, parts.give);
      break;
    default: {
      const bool lists_in = has_block_per_rank(parts.motion) && !inputs.empty();
      const bool lists_out =
          (parts.motion == Motion::allgather || parts.motion == Motion::gather || parts.motion == Motion::alltoall) &&
          !outputs.empty();
      if (lists_out) outputs.lists(parts.take);
      else outputs.whole(parts.take);
      if (lists_in) inputs.lists(parts.give);
      else inputs.whole(parts.give);
    }
  }
  const bool only_takes = parts.motion == Motion::scatter && rank != collective.root;
  parts.block_bytes = (only_takes ? parts.take : parts.give)[0].bytes();
  return parts;
}

void take_in(const Parts& parts) {
  for (const auto& [original, copy, _] : parts.copied) copy.copy_from(original);
}

void give_back(const Parts& parts) {
  for (const auto& [original, copy, written] : parts.copied) {
    if (written) original.copy_from(copy);
  }
}

}  // namespace hookline::backend
