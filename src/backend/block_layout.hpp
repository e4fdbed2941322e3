// The memory of a collective on one rank, divided into the blocks that it sends and receives.
#pragma once

#include <vector>

#include <hookline/backend/operation.hpp>

#include "backend/op_signature.hpp"
#include "backend/segment_list.hpp"

namespace hookline::backend {

/// The communication pattern of an operation.
enum class Pattern : std::uint8_t {
  none,            ///< barriers: signatures are compared, no data moves
  allreduce,       ///< every rank sends one block and receives the reduction
  reduce,          ///< every rank sends one block; the root receives the reduction
  reduce_scatter,  ///< every rank sends a block to each rank and receives the reduction of its own block
  broadcast,       ///< the root sends one block to all other ranks
  allgather,       ///< every rank sends one block to all ranks
  gather,          ///< every rank sends one block to the root
  scatter,         ///< the root sends a block to each rank
  alltoall,        ///< every rank sends a block of any size to each rank
};

Pattern pattern_of(OpType type) noexcept;

/// True for allreduce, reduce and reduce_scatter.
bool reduces(Pattern pattern) noexcept;
/// True if the rank sends data.
bool is_source(Pattern pattern, int rank, int root) noexcept;
/// True if rank `source` sends data to rank `target`. Only for patterns without a reduction.
bool sends_to(Pattern pattern, int source, int target, int root) noexcept;
/// True if a sender has one block for each rank rather than one block for all.
bool is_scattered(Pattern pattern) noexcept;

/// The blocks of a collective on one rank.
struct BlockLayout {
  Pattern pattern = Pattern::none;
  DType dtype = DType::u8;
  std::size_t block_bytes = 0;  ///< size of each block, if all are equal
  Blocks send_blocks;           ///< one block, or one for each rank
  Blocks recv_blocks;           ///< one block, or one from each rank
  /// The contiguous copy of a non-contiguous tensor.
  struct Staged {
    Tensor original;
    Tensor copy;
    bool is_output;
  };
  std::vector<Staged> staged;
};

/// Divides the tensors of a validated collective into blocks, for rank `rank` of `size`. Does not read tensor values:
/// pack_inputs() does.
BlockLayout make_block_layout(const Operation& operation, int rank, int size);

/// Copies non-contiguous inputs into their staged copies. Call when the operation starts to run, because earlier
/// operations of the lane may write to its tensors.
void pack_inputs(const BlockLayout& layout);
/// Copies the staged outputs back. Call when the operation is done.
void unpack_outputs(const BlockLayout& layout);

/// Divides `bytes` into `count` slices at multiples of 64 bytes and returns the offset at which slice `index` begins.
/// The last slice ends at slice_begin(bytes, count, count).
constexpr std::size_t slice_begin(std::size_t bytes, std::size_t count, std::size_t index) {
  const std::size_t lines = (bytes + kCacheLineBytes - 1) / kCacheLineBytes;
  const std::size_t at = (lines * index / count) * kCacheLineBytes;
  return at < bytes ? at : bytes;
}

}  // namespace hookline::backend
