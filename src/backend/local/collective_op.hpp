// CollectiveOp: the state machine of one collective on one rank.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include <hookline/backend/operation.hpp>

#include "backend/block_layout.hpp"
#include "backend/local/memory.hpp"
#include "backend/local/nt_store_tuner.hpp"
#include "backend/step_coroutine.hpp"
#include "kernel/store_mode.hpp"

namespace hookline::local {

using backend::BlockLayout;
using backend::FrameStorage;
using backend::kYield;
using backend::Pattern;
using backend::SegmentList;
using backend::slice_begin;
using backend::StepCoroutine;

/// The state of a lane's current operation that is sized by the number of ranks. Kept in the lane, so that operations
/// stay small.
struct LaneScratch {
  void set_size(int ranks) {
    signatures.resize(static_cast<std::size_t>(ranks));
    shared_blocks.resize(static_cast<std::size_t>(ranks));
  }

  std::vector<OpSignature> signatures;    ///< by rank
  std::vector<std::byte*> shared_blocks;  ///< by rank: addresses of the inputs, in direct mode
  FrameStorage frame_storage;
  NtStoreTuner nt_store_tuner;
};

/// The operation is one coroutine, run(). Its states are the points at which it waits for a counter of its peers:
///   posted    all ranks have posted their signatures; all compare them and select the same path
///   inlined   small inputs: every rank reads all payloads from the slots
///   direct    inputs in shared memory: while all peers are active, every rank reads and writes them in place, then
///             waits for all ranks. A rank that leaves earlier invalidates memory in use, so it counts as awaited
///   staged    rounds over the lane's staging buffers: fill, reduce (for allreduce and reduce), drain
/// Rounds are counted over all operations of a lane, equally on all ranks. Invariant: a rank may fill the buffer of
/// round g once it has finished round g - 1. It has then seen all ranks fill g - 1, and a rank that fills g - 1 has
/// finished all rounds up to g - 2, including the previous round of this buffer.
class CollectiveOp {
 public:
  /// The operation must outlive this object. `scratch` belongs to the lane, which steps one operation at a time.
  CollectiveOp(Memory& memory, int lane, LaneScratch& scratch, const Operation& operation);
  CollectiveOp(const CollectiveOp&) = delete;
  CollectiveOp& operator=(const CollectiveOp&) = delete;

  /// True if the inputs of all ranks fit into the slots. False for alltoall, since this rank knows only its own splits.
  bool fits_inline() const;

  /// Runs the protocol. Throws Mismatch if the ranks called different operations. `sequence` counts the operations of
  /// the lane from 1.
  StepCoroutine run(std::uint64_t sequence, std::uint64_t first_round);
  FrameStorage& frame_storage() const noexcept { return scratch_.frame_storage; }
  /// Returns the number of rounds. Call when the operation is done.
  std::uint64_t rounds() const noexcept { return rounds_; }

  /// Returns the ranks that have not reached the awaited phase, and ranks that left during direct mode. Used for error
  /// messages and to detect that a departed rank is missing.
  std::vector<int> awaited_ranks() const;
  std::string describe() const { return backend::describe(signature_); }
  /// Returns a counter that grows with each step that makes progress.
  std::uint64_t progress() const noexcept { return progress_; }

 private:
  enum class Path : std::uint8_t { inlined, direct, staged };
  enum class Phase : std::uint8_t { posted, filled, reduced, drained };

  LaneBlock& lane(int rank) const { return memory_.block(rank).lanes[static_cast<std::size_t>(lane_)]; }
  Slot& slot(int rank) const { return lane(rank).slots[sequence_ % 2]; }
  Counter& phase_counter(int rank, Phase phase) const;
  /// True if every rank's counter has reached the value.
  bool all_reached(Phase phase, std::uint64_t value);
  /// True if any rank is not active.
  bool any_peer_gone() const;
  void publish(Phase phase, std::uint64_t value);
  /// True if this rank must wake the peers: always in a small group; in a large one, if it is the last to reach the
  /// value.
  bool must_notify(Phase phase, std::uint64_t value) const;
  /// Wakes the peers after post_slot(), at the first call.
  void notify_peers_once();

  void post_slot();
  void compare_signatures();
  void compare_splits();
  void select_path();

  bool is_source(int rank) const { return backend::is_source(layout_.pattern, rank, operation_.root); }
  std::size_t block_bytes(int source, int target) const;
  std::size_t block_begin(int source, int target) const;
  /// Returns the size of all blocks that a rank sends.
  std::size_t bytes_sent_by(int source) const;
  /// Returns the size of the splits, which precede the blocks in a slot.
  std::size_t slot_header_bytes() const;
  const std::byte* source_data(int rank, int target, std::size_t begin) const;
  std::byte* staging_data(int rank) const;

  bool reduces_by_slices() const { return layout_.pattern == Pattern::allreduce || layout_.pattern == Pattern::reduce; }
  bool receives_reduction() const { return layout_.pattern != Pattern::reduce || rank_ == operation_.root; }

  void fill_staging(std::size_t begin);
  void read_blocks(std::size_t begin, std::size_t bytes);
  void reduce_slice(std::size_t begin, std::size_t bytes);
  void copy_reduced_slices(std::size_t begin, std::size_t bytes);
  /// Reads and reduces in place. Returns false and changes nothing if a rank is gone.
  bool process_in_place(std::size_t begin, std::size_t bytes);
  void reduce_in_place(std::size_t begin, std::size_t bytes);
  void reduce(const std::byte* const* sources, std::initializer_list<std::byte*> destinations, std::size_t bytes,
              kernel::StoreMode stores) const;
  /// Returns the kind of stores for outputs that are not inputs: streaming if the outputs exceed the caches.
  kernel::StoreMode output_stores() const;
  kernel::StoreMode staging_stores() const { return scratch_.nt_store_tuner.select_stores(round_); }

  Memory& memory_;
  const int lane_;
  const int rank_;
  const int size_;
  const Operation& operation_;
  LaneScratch& scratch_;
  BlockLayout layout_;
  OpSignature signature_;
  std::vector<std::uint64_t> splits_;  ///< for alltoall: bytes from each rank (row) to each rank (column)

  std::uint64_t sequence_ = 0;
  std::uint64_t round_ = 0;      ///< current round, counted over the lane's operations
  std::size_t round_begin_ = 0;  ///< offset of the current round in each block
  std::uint64_t rounds_ = 0;
  std::uint64_t progress_ = 0;
  std::size_t largest_block_ = 0;
  std::size_t chunk_bytes_ = kChunkBytes;  ///< bytes of each block in a round
  Path path_ = Path::inlined;
  bool peers_notified_ = false;
  std::vector<std::shared_ptr<std::byte>> mappings_;

  Phase awaited_phase_ = Phase::posted;
  std::uint64_t awaited_value_ = 0;
};

}  // namespace hookline::local
