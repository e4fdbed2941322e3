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

/// What the operation under way knows of the ranks: one a lane, since an operation should not be as large as that.
struct LaneScratch {
  void set_size(int ranks) {
    signatures.resize(static_cast<std::size_t>(ranks));
    shared_blocks.resize(static_cast<std::size_t>(ranks));
  }

  std::vector<OpSignature> signatures;           ///< by rank
  std::vector<std::byte*> shared_blocks;  ///< by rank: where the blocks lie, in direct mode
  FrameStorage frame_storage;
  NtStoreTuner nt_store_tuner;
};

/// The operation is one coroutine, run(). Its states are the places where it waits for a word of its peers:
///   posted    everybody has posted its call for this number; calls are compared, all ranks choose alike
///   inlined   small: everybody reads all payloads from the slots; done
///   direct    what is read of the ranks lies in shared memory: read and write there, while nobody is gone; then wait
///             until all are through. Who leaves before takes memory along that is being read, and is missed
///   staged    rounds over the lane's staging buffers, in turn: fill, (reduce,) drain
/// Rounds are counted over all operations of a lane; all ranks count alike. A rank may fill the buffer of round g as
/// soon as it is through with round g - 1: it has seen everybody fill that one, and who fills g - 1 has done with g - 2
/// and all rounds before, one of which lay in the same buffer.
class CollectiveOp {
 public:
  /// The collective must outlive the exchange; the scratch memory is the lane's, for the one that is being stepped.
  CollectiveOp(Memory& memory, int lane, LaneScratch& scratch, const Operation& operation);
  CollectiveOp(const CollectiveOp&) = delete;
  CollectiveOp& operator=(const CollectiveOp&) = delete;

  /// Whether all that the ranks give is sure to fit into the slots: of an alltoall, this rank knows its own part only.
  bool fits_inline() const;

  /// The protocol; throws Mismatch where the calls differ. `number` counts the lane's operations from 1.
  StepCoroutine run(std::uint64_t sequence, std::uint64_t first_round);
  FrameStorage& frame_storage() const noexcept { return scratch_.frame_storage; }
  /// How many rounds it used up, once it is over.
  std::uint64_t rounds() const noexcept { return rounds_; }

  /// The ranks that it waits for now, or in vain: for error messages, and to know whether a rank that left is missed.
  std::vector<int> awaited_ranks() const;
  std::string describe() const { return backend::describe(signature_); }
  /// Grows whenever the operation gets on, so that a driver can tell a step from a vain look.
  std::uint64_t progress() const noexcept { return progress_; }

 private:
  enum class Path : std::uint8_t { inlined, direct, staged };
  enum class Phase : std::uint8_t { posted, filled, reduced, drained };

  LaneBlock& lane(int rank) const { return memory_.block(rank).lanes[static_cast<std::size_t>(lane_)]; }
  Slot& slot(int rank) const { return lane(rank).slots[sequence_ % 2]; }
  Counter& phase_counter(int rank, Phase phase) const;
  /// Whether every rank's word has come to the value.
  bool all_reached(Phase phase, std::uint64_t value);
  /// Whether a rank failed or left.
  bool any_peer_gone() const;
  void publish(Phase which, std::uint64_t value);
  /// True unless another rank, which comes to the value later, wakes the peers.
  bool must_notify(Phase which, std::uint64_t value) const;
  /// Wakes peers that sleep over what post() has stored.
  void notify_peers_once();

  void post_slot();
  void compare_signatures();
  void compare_splits();
  void select_path();

  bool is_source(int rank) const { return backend::is_source(layout_.pattern, rank, operation_.root); }
  std::size_t block_bytes(int source, int target) const;
  std::size_t block_begin(int source, int target) const;
  /// All that a rank gives.
  std::size_t bytes_sent_by(int source) const;
  /// What stands before the blocks in a slot.
  std::size_t slot_header_bytes() const;
  const std::byte* source_data(int rank, int target, std::size_t begin) const;
  std::byte* staging_data(int rank) const;

  bool reduces_by_slices() const { return layout_.pattern == Pattern::allreduce || layout_.pattern == Pattern::reduce; }
  bool receives_reduction() const { return layout_.pattern != Pattern::reduce || rank_ == operation_.root; }

  void fill_staging(std::size_t begin);
  void read_blocks(std::size_t begin, std::size_t bytes);
  void reduce_slice(std::size_t begin, std::size_t bytes);
  void copy_reduced_slices(std::size_t begin, std::size_t bytes);
  /// False, with nothing done, where a rank is gone.
  bool process_in_place(std::size_t begin, std::size_t bytes);
  void reduce_in_place(std::size_t begin, std::size_t bytes);
  void reduce(const std::byte* const* sources, std::initializer_list<std::byte*> destinations, std::size_t bytes,
              kernel::StoreMode stores) const;
  /// How outputs are written that are not inputs too: around the caches, where together they are too large for them.
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
  std::vector<std::uint64_t> splits_;  ///< of alltoall: bytes from each rank (row) to each rank (column)

  std::uint64_t sequence_ = 0;
  std::uint64_t round_ = 0;      ///< the round under way, counted over the lane's operations
  std::size_t round_begin_ = 0;  ///< the first byte of each block that it moves
  std::uint64_t rounds_ = 0;
  std::uint64_t progress_ = 0;
  std::size_t largest_block_ = 0;
  std::size_t chunk_bytes_ = kChunkBytes;  ///< bytes of a block that one round moves
  Path path_ = Path::inlined;
  bool peers_notified_ = false;
  std::vector<std::shared_ptr<std::byte>> mappings_;

  Phase awaited_phase_ = Phase::posted;
  std::uint64_t awaited_value_ = 0;
};

}  // namespace hookline::local
