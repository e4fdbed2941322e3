// A collective as those who move its bytes see it: what this rank gives to whom, and where what it gets goes.
#pragma once

#include <vector>

#include <hookline/backend/collective.hpp>

#include "backend/call.hpp"
#include "backend/stream.hpp"

namespace hookline::backend {

/// How the bytes move, which is all that the protocol needs to know of an operation.
enum class Motion : std::uint8_t {
  none,            ///< barriers: the calls are compared, nothing moves
  allreduce,       ///< everybody gives one block, everybody gets their reduction
  reduce,          ///< the same, at the root only
  reduce_scatter,  ///< everybody gives a block for each rank, and gets the reduction of its own
  broadcast,       ///< the root gives one block to everybody else
  allgather,       ///< everybody gives one block to everybody
  gather,          ///< everybody gives one block to the root
  scatter,         ///< the root gives a block to each rank
  alltoall,        ///< everybody gives a block of any size to each rank
};

Motion motion_of(OpType type) noexcept;

/// Whether what everybody gives is reduced.
bool reduces(Motion motion) noexcept;
/// Whether a rank gives anything.
bool is_source(Motion motion, int rank, int root) noexcept;
/// Whether rank `source` gives something to rank `target` in a motion that copies.
bool gives(Motion motion, int source, int target, int root) noexcept;
/// Whether a rank gives a block of its own to each rank rather than one to all.
bool has_block_per_rank(Motion motion) noexcept;

struct Parts {
  Motion motion = Motion::none;
  DType dtype = DType::u8;
  std::size_t block_bytes = 0;  ///< of each block, where all are alike
  Blocks give;                  ///< one block, or one for each rank
  Blocks take;                  ///< one block, or one from each rank
  /// A tensor that is not contiguous travels as a copy that is.
  struct Copied {
    Tensor original;
    Tensor copy;
    bool written;
  };
  std::vector<Copied> copied;
};

/// Cuts a checked collective into blocks. `rank` is the one that calls, of `size`. Reads no values: they are those of
/// the moment when take_in() is called.
Parts cut(const Collective& collective, int rank, int size);

/// Copies what is not contiguous: when the operation's turn has come, as those before it may write to its tensors.
void take_in(const Parts& parts);
/// Copies what was written back, when the operation is done.
void give_back(const Parts& parts);

/// The beginning of slice `index` when `bytes` are cut into `count` slices at multiples of 64 bytes; the end of the
/// last one is slice_begin(bytes, count, count).
constexpr std::size_t slice_begin(std::size_t bytes, std::size_t count, std::size_t index) {
  const std::size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  const std::size_t at = (lines * index / count) * kCacheLine;
  return at < bytes ? at : bytes;
}

}  // namespace hookline::backend
