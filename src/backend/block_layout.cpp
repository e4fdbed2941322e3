// Divides the tensors of collectives into blocks.
#include "backend/block_layout.hpp"

namespace hookline::backend {
namespace {

// Returns the contiguous memory of a tensor in this operation: its own, or that of a staged copy.
std::byte* contiguous_storage(const Tensor& tensor, bool is_output, BlockLayout& layout) {
  if (tensor.is_contiguous()) return const_cast<std::byte*>(tensor.bytes());
  for (const auto& [original, copy, _] : layout.staged) {
    if (original.bytes() == tensor.bytes() && original.strides() == tensor.strides() &&
        original.shape() == tensor.shape()) {
      return copy.mutable_bytes();
    }
  }
  const Tensor copy = Tensor::empty(tensor.shape(), tensor.dtype());
  // The root of a broadcast and the non-root ranks of a reduce may pass read-only tensors.
  layout.staged.push_back({tensor, copy, is_output && !tensor.read_only()});
  return copy.mutable_bytes();
}

// Builds the blocks of the inputs or of the outputs.
class BlockBuilder {
 public:
  BlockBuilder(const std::vector<Tensor>& tensors, bool is_output, std::size_t ranks, BlockLayout& layout)
      : tensors_(tensors), is_output_(is_output), ranks_(ranks), layout_(layout) {}

  bool empty() const { return tensors_.empty(); }

  // Builds one block: all tensors, concatenated.
  void one_block(Blocks& blocks) const {
    blocks.resize(1);
    for (const Tensor& t : tensors_) blocks[0].append(storage_of(t), t.nbytes());
  }

  // Builds one block per rank, from consecutive lists of equal length.
  void blocks_of_lists(Blocks& blocks) const {
    blocks.resize(ranks_);
    const std::size_t tensors_per_rank = tensors_.size() / ranks_;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      blocks[i / tensors_per_rank].append(storage_of(tensors_[i]), tensors_[i].nbytes());
    }
  }

  // Builds one block per rank, from equal slices of each tensor.
  void blocks_of_slices(Blocks& blocks) const {
    blocks.resize(ranks_);
    for (const Tensor& t : tensors_) {
      std::byte* const memory = storage_of(t);
      const std::size_t bytes = t.nbytes() / ranks_;
      for (std::size_t r = 0; r < ranks_; ++r) blocks[r].append(memory + r * bytes, bytes);
    }
  }

  // Builds one block per rank, from the given numbers of rows of one tensor.
  void blocks_of_rows(const std::vector<std::int64_t>& splits, Blocks& blocks) const {
    if (splits.empty()) return blocks_of_slices(blocks);
    blocks.resize(ranks_);
    const Tensor& t = tensors_[0];
    const std::int64_t height = t.dim() > 0 ? t.shape()[0] : 1;
    const std::size_t row = height > 0 ? t.nbytes() / static_cast<std::size_t>(height) : 0;
    std::byte* at = storage_of(t);
    for (std::size_t r = 0; r < ranks_; ++r) {
      const std::size_t bytes = static_cast<std::size_t>(splits[r]) * row;
      blocks[r].append(at, bytes);
      at += bytes;
    }
  }

 private:
  std::byte* storage_of(const Tensor& tensor) const { return contiguous_storage(tensor, is_output_, layout_); }

  const std::vector<Tensor>& tensors_;
  const bool is_output_;
  const std::size_t ranks_;
  BlockLayout& layout_;
};

}  // namespace

Pattern pattern_of(OpType type) noexcept {
  switch (type) {
    case OpType::allreduce:
    case OpType::allreduce_coalesced: return Pattern::allreduce;
    case OpType::reduce: return Pattern::reduce;
    case OpType::broadcast: return Pattern::broadcast;
    case OpType::allgather:
    case OpType::allgather_into_tensor:
    case OpType::allgather_coalesced:
    case OpType::allgather_into_tensor_coalesced: return Pattern::allgather;
    case OpType::gather: return Pattern::gather;
    case OpType::scatter: return Pattern::scatter;
    case OpType::reduce_scatter:
    case OpType::reduce_scatter_tensor:
    case OpType::reduce_scatter_tensor_coalesced: return Pattern::reduce_scatter;
    case OpType::alltoall:
    case OpType::alltoall_base: return Pattern::alltoall;
    case OpType::send:
    case OpType::recv:
    case OpType::recv_anysource:
    case OpType::barrier:
    case OpType::monitored_barrier: break;
  }
  return Pattern::none;
}

bool reduces(Pattern pattern) noexcept {
  return pattern == Pattern::allreduce || pattern == Pattern::reduce || pattern == Pattern::reduce_scatter;
}

bool is_source(Pattern pattern, int rank, int root) noexcept {
  return (pattern != Pattern::broadcast && pattern != Pattern::scatter) || rank == root;
}

bool sends_to(Pattern pattern, int source, int target, int root) noexcept {
  switch (pattern) {
    case Pattern::broadcast: return source == root && target != root;
    case Pattern::scatter: return source == root;
    case Pattern::gather: return target == root;
    case Pattern::none: return false;
    default: return true;
  }
}

bool is_scattered(Pattern pattern) noexcept {
  return pattern == Pattern::reduce_scatter || pattern == Pattern::scatter || pattern == Pattern::alltoall;
}

BlockLayout make_block_layout(const Operation& operation, int rank, int size) {
  BlockLayout layout;
  layout.pattern = pattern_of(operation.type);
  if (layout.pattern == Pattern::none) return layout;
  const auto ranks = static_cast<std::size_t>(size);
  layout.dtype = (operation.inputs.empty() ? operation.outputs : operation.inputs)[0].dtype();

  // Outputs first: an input that is also an output shares its staged copy.
  const BlockBuilder outputs(operation.outputs, true, ranks, layout);
  const BlockBuilder inputs(operation.inputs, false, ranks, layout);

  switch (operation.type) {
    case OpType::allreduce:
    case OpType::allreduce_coalesced:
    case OpType::reduce:
    case OpType::broadcast:
      outputs.one_block(layout.recv_blocks);
      layout.send_blocks = layout.recv_blocks;
      break;
    case OpType::allgather_into_tensor:
    case OpType::allgather_into_tensor_coalesced:
      outputs.blocks_of_slices(layout.recv_blocks);
      inputs.one_block(layout.send_blocks);
      break;
    case OpType::reduce_scatter_tensor:
    case OpType::reduce_scatter_tensor_coalesced:
      outputs.one_block(layout.recv_blocks);
      inputs.blocks_of_slices(layout.send_blocks);
      break;
    case OpType::alltoall_base:
      outputs.blocks_of_rows(operation.output_splits, layout.recv_blocks);
      inputs.blocks_of_rows(operation.input_splits, layout.send_blocks);
      break;
    default: {
      const bool lists_in = is_scattered(layout.pattern) && !inputs.empty();
      const bool lists_out = (layout.pattern == Pattern::allgather || layout.pattern == Pattern::gather ||
                              layout.pattern == Pattern::alltoall) &&
                             !outputs.empty();
      if (lists_out) outputs.blocks_of_lists(layout.recv_blocks);
      else outputs.one_block(layout.recv_blocks);
      if (lists_in) inputs.blocks_of_lists(layout.send_blocks);
      else inputs.one_block(layout.send_blocks);
    }
  }
  const bool receives_only = layout.pattern == Pattern::scatter && rank != operation.root;
  layout.block_bytes = (receives_only ? layout.recv_blocks : layout.send_blocks)[0].bytes();
  return layout;
}

void pack_inputs(const BlockLayout& layout) {
  for (const auto& [original, copy, _] : layout.staged) copy.copy_from(original);
}

void unpack_outputs(const BlockLayout& layout) {
  for (const auto& [original, copy, written] : layout.staged) {
    if (written) original.copy_from(copy);
  }
}

}  // namespace hookline::backend
