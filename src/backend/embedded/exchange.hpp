// CollectiveOp: the state machine of one collective on one rank.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include <hookline/backend/collective.hpp>

#include "backend/embedded/memory.hpp"
#include "backend/embedded/staging_pace.hpp"
#include "backend/parts.hpp"
#include "backend/steps.hpp"
#include "kernel/stores.hpp"

namespace hookline::embedded {

using backend::kBlocked;
using backend::Motion;
using backend::Parts;
using backend::slice_begin;
using backend::Steps;
using backend::StepsRoom;
using backend::Stream;

/// What the operation under way knows of the ranks: one a lane, since an operation should not be as large as that.
struct Scratch {
  void set_size(int ranks) {
    calls.resize(static_cast<std::size_t>(ranks));
    shared.resize(static_cast<std::size_t>(ranks));
  }

  std::vector<Call> calls;         ///< by rank
  std::vector<std::byte*> shared;  ///< by rank: where the blocks lie, in direct mode
  StepsRoom steps_room;
  StagingPace pace;
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
class Exchange {
 public:
  /// The collective must outlive the exchange; the scratch memory is the lane's, for the one that is being stepped.
  Exchange(Memory& memory, int lane, Scratch& scratch, const Collective& collective);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Whether all that the ranks give is sure to fit into the slots: of an alltoall, this rank knows its own part only.
  bool fits_slots() const;

  /// The protocol; throws Mismatch where the calls differ. `number` counts the lane's operations from 1.
  Steps run(std::uint64_t number, std::uint64_t first_round);
  StepsRoom& steps_room() const noexcept { return scratch_.steps_room; }
  /// How many rounds it used up, once it is over.
  std::uint64_t rounds() const noexcept { return rounds_; }

  /// The ranks that it waits for now, or in vain: for error messages, and to know whether a rank that left is missed.
  std::vector<int> awaited() const;
  std::string describe() const { return backend::describe(call_); }
  /// Grows whenever the operation gets on, so that a driver can tell a step from a vain look.
  std::uint64_t moves() const noexcept { return moves_; }

 private:
  enum class Mode : std::uint8_t { inlined, direct, staged };
  enum class Word : std::uint8_t { number, filled, reduced, drained };

  LaneBlock& lane(int rank) const { return memory_.block(rank).lanes[static_cast<std::size_t>(lane_)]; }
  Slot& slot(int rank) const { return lane(rank).slots[number_ % 2]; }
  Counter& word(int rank, Word which) const;
  /// Whether every rank's word has come to the value.
  bool reached(Word which, std::uint64_t value);
  /// Whether a rank gave up or left.
  bool anybody_gone() const;
  void publish(Word which, std::uint64_t value);
  /// True unless another rank, which comes to the value later, wakes the peers.
  bool must_ring(Word which, std::uint64_t value) const;
  /// Wakes peers that sleep over what post() has stored.
  void ring_once();

  void post();
  void compare();
  void compare_splits();
  void choose();

  bool is_source(int rank) const { return backend::is_source(parts_.motion, rank, collective_.root); }
  std::size_t block_bytes(int source, int target) const;
  std::size_t block_begin(int source, int target) const;
  /// All that a rank gives.
  std::size_t given(int source) const;
  /// What stands before the blocks in a slot.
  std::size_t head_bytes() const;
  const std::byte* source(int rank, int target, std::size_t begin) const;
  std::byte* staging(int rank) const;

  bool reduces_slices() const { return parts_.motion == Motion::allreduce || parts_.motion == Motion::reduce; }
  bool takes_reduction() const { return parts_.motion != Motion::reduce || rank_ == collective_.root; }

  void fill(std::size_t begin);
  void pull(std::size_t begin, std::size_t bytes);
  void reduce_slice(std::size_t begin, std::size_t bytes);
  void drain_slices(std::size_t begin, std::size_t bytes);
  /// False, with nothing done, where a rank is gone.
  bool move_in_place(std::size_t begin, std::size_t bytes);
  void reduce_in_place(std::size_t begin, std::size_t bytes);
  void reduce(const std::byte* const* sources, std::initializer_list<std::byte*> destinations, std::size_t bytes,
              kernel::Stores stores) const;
  /// How outputs are written that are not inputs too: around the caches, where together they are too large for them.
  kernel::Stores output_stores() const;
  kernel::Stores staging_stores() const { return scratch_.pace.stores(round_); }

  Memory& memory_;
  const int lane_;
  const int rank_;
  const int size_;
  const Collective& collective_;
  Scratch& scratch_;
  Parts parts_;
  Call call_;
  std::vector<std::uint64_t> splits_;  ///< of alltoall: bytes from each rank (row) to each rank (column)

  std::uint64_t number_ = 0;
  std::uint64_t round_ = 0;      ///< the round under way, counted over the lane's operations
  std::size_t round_begin_ = 0;  ///< the first byte of each block that it moves
  std::uint64_t rounds_ = 0;
  std::uint64_t moves_ = 0;
  std::size_t largest_block_ = 0;
  std::size_t chunk_ = kChunkBytes;  ///< bytes of a block that one round moves
  Mode mode_ = Mode::inlined;
  bool rung_ = false;
  std::vector<std::shared_ptr<std::byte>> mappings_;

  Word awaited_word_ = Word::number;
  std::uint64_t awaited_value_ = 0;
};

}  // namespace hookline::embedded
