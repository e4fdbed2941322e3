// The memory of a collective on one rank, divided into the blocks that it sends and receives.
#pragma once

#include <vector>

#include <hookline/backend/collective.hpp>

#include "backend/call.hpp"
#include "backend/stream.hpp"

namespace hookline::backend {

/// The communication pattern of an operation.
enum class Motion : std::uint8_t {
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

Motion motion_of(OpType type) noexcept;

/// True for allreduce, reduce and reduce_scatter.
bool reduces(Motion motion) noexcept;
/// True if the rank sends data.
bool is_source(Motion motion, int rank, int root) noexcept;
/// True if rank `source` sends data to rank `target`. Only for patterns without a reduction.
bool gives(Motion motion, int source, int target, int root) noexcept;
/// True if a sender has one block for each rank rather than one block for all.
bool has_block_per_rank(Motion motion) noexcept;

/// The blocks of a collective on one rank.
struct Parts {
  Motion motion = Motion::none;
  DType dtype = DType::u8;
  std::size_t block_bytes = 0;  ///< size of each block, if all are equal
  Blocks give;                  ///< one block, or one for each rank
  Blocks take;                  ///< one block, or one from each rank
  /// The contiguous copy of a non-contiguous tensor.
  struct Copied {
    Tensor original;
    Tensor copy;
    bool written;
  };
  std::vector<Copied> copied;
};

/// Divides the tensors of a validated collective into blocks, for rank `rank` of `size`. Does not read tensor values:
/// pack_inputs() does.
Parts cut(const Collective& collective, int rank, int size);

/// Copies non-contiguous inputs into their staged copies. Call when the operation starts to run, because earlier
/// operations of the lane may write to its tensors.
void take_in(const Parts& parts);
/// Copies the staged outputs back. Call when the operation is done.
void give_back(const Parts& parts);

/// Returns the begin of slice `index` if `bytes` are divided into `count` slices at multiples of 64 bytes. The end of
/// the last slice is slice_begin(bytes, count, count).
constexpr std::size_t slice_begin(std::size_t bytes, std::size_t count, std::size_t index) {
  const std::size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  const std::size_t at = (lines * index / count) * kCacheLine;
  return at < bytes ? at : bytes;
}

}  // namespace hookline::backend
