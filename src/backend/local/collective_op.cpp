// The protocol of a collective: post and compare signatures, then move data inline, in place or staged.
#include "backend/local/collective_op.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/local/futex_event.hpp"

namespace hookline::local {

CollectiveOp::CollectiveOp(Memory& memory, int lane, LaneScratch& scratch, const Operation& operation)
    : memory_(memory),
      lane_(lane),
      rank_(memory.rank()),
      size_(memory.size()),
      operation_(operation),
      scratch_(scratch),
      layout_(backend::make_block_layout(operation_, rank_, size_)),
      signature_(signature_of(operation_, layout_)) {}

bool CollectiveOp::fits_inline() const {
  return layout_.pattern != Pattern::alltoall && bytes_sent_by(operation_.root) <= kInlineBytes;
}

StepCoroutine CollectiveOp::run(std::uint64_t sequence, std::uint64_t first_round) {
  sequence_ = sequence;
  round_ = first_round;
  pack_inputs(layout_);
  post_slot();
  while (!all_reached(Phase::posted, sequence_)) {
    notify_peers_once();
    co_await kYield;
  }
  compare_signatures();
  select_path();

  if (path_ == Path::inlined) {
    read_blocks(0, largest_block_);
    notify_peers_once();
  } else if (path_ == Path::direct) {
    notify_peers_once();
    // Each rank processes its share, then waits: peers access its inputs until all ranks are done.
    const auto ranks = static_cast<std::size_t>(size_);
    const auto me = static_cast<std::size_t>(rank_);
    const std::size_t begin = reduces_by_slices() ? slice_begin(largest_block_, ranks, me) : 0;
    const std::size_t end = reduces_by_slices() ? slice_begin(largest_block_, ranks, me + 1) : largest_block_;
    const std::size_t stride = operation_.reader ? std::max<std::size_t>(end, 1) : kChunkBytes;
    for (std::size_t at = begin; at < end; at += stride) {
      // A rank that is gone may reuse its tensors, so this rank stops writing to them.
      while (!process_in_place(at, std::min(stride, end - at))) co_await kYield;
      ++progress_;
      co_await kYield;
    }
    // Data read from a rank that is gone may be invalid. Before all ranks are done, a rank leaves only if it fails.
    while (any_peer_gone()) co_await kYield;
    rounds_ = 1;
    lane(rank_).filled.store(round_ + 1, std::memory_order_release);
    lane(rank_).reduced.store(round_ + 1, std::memory_order_release);
    publish(Phase::drained, round_ + 1);
    while (!all_reached(Phase::drained, round_ + 1)) co_await kYield;
  } else {
    notify_peers_once();
    rounds_ = (largest_block_ + chunk_bytes_ - 1) / chunk_bytes_;
    for (std::uint64_t k = 0; k < rounds_; ++k, ++round_) {
      round_begin_ = k * chunk_bytes_;
      const bool timed = scratch_.nt_store_tuner.is_timed(round_) && largest_block_ - round_begin_ >= chunk_bytes_;
      const Clock::time_point began = timed ? Clock::now() : Clock::time_point();
      fill_staging(round_begin_);
      publish(Phase::filled, round_ + 1);
      while (!all_reached(Phase::filled, round_ + 1)) co_await kYield;
      const std::size_t round_bytes = std::min(chunk_bytes_, largest_block_ - round_begin_);
      if (reduces_by_slices()) {
        reduce_slice(round_begin_, round_bytes);
        publish(Phase::reduced, round_ + 1);
        while (!all_reached(Phase::reduced, round_ + 1)) co_await kYield;
        copy_reduced_slices(round_begin_, round_bytes);
      } else {
        read_blocks(round_begin_, round_bytes);
      }
      if (timed) scratch_.nt_store_tuner.record(round_, Clock::now() - began);
    }
    lane(rank_).reduced.store(round_, std::memory_order_release);
    lane(rank_).drained.store(round_, std::memory_order_release);
  }
  unpack_outputs(layout_);
}

bool CollectiveOp::any_peer_gone() const {
  for (int r = 0; r < size_; ++r) {
    if (memory_.block(r).state.load(std::memory_order_seq_cst) != RankState::active) return true;
  }
  return false;
}

Counter& CollectiveOp::phase_counter(int rank, Phase phase) const {
  switch (phase) {
    case Phase::posted: return slot(rank).sequence;
    case Phase::filled: return lane(rank).filled;
    case Phase::reduced: return lane(rank).reduced;
    case Phase::drained: break;
  }
  return lane(rank).drained;
}

bool CollectiveOp::all_reached(Phase phase, std::uint64_t value) {
  awaited_phase_ = phase;
  awaited_value_ = value;
  for (int r = 0; r < size_; ++r) {
    if (phase_counter(r, phase).load(std::memory_order_acquire) < value) return false;
  }
  ++progress_;
  return true;
}

std::vector<int> CollectiveOp::awaited_ranks() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    const bool left = memory_.block(r).state.load(std::memory_order_seq_cst) == RankState::left;
    const bool missing = phase_counter(r, awaited_phase_).load(std::memory_order_acquire) < awaited_value_;
    if (missing || (path_ == Path::direct && left)) ranks.push_back(r);
  }
  return ranks;
}

// Peers wait until all ranks have reached a value, so only the last rank must wake them; otherwise every rank of a
// large group wakes every other one. Dekker handshake, all seq_cst: each rank stores its counter, then loads those of
// all ranks, so the last rank to store sees that all have reached the value. In a small group these loads of contended
// cache lines cost more than unnecessary wake-ups.
bool CollectiveOp::must_notify(Phase phase, std::uint64_t value) const {
  constexpr int kSmallGroup = 16;
  if (size_ <= kSmallGroup) return true;
  for (int r = 0; r < size_; ++r) {
    if (phase_counter(r, phase).load(std::memory_order_seq_cst) < value) return false;
  }
  return true;
}

void CollectiveOp::publish(Phase phase, std::uint64_t value) {
  phase_counter(rank_, phase).store(value, std::memory_order_seq_cst);
  if (must_notify(phase, value)) notify_peers(memory_);
}

// Delayed wake-up: post_slot() stores the sequence with release order, but waking needs a seq_cst fence, which takes as
// long as the peers need to release the cache lines of the slot. If no rank sleeps, the usual case, a small operation
// has completed by then.
void CollectiveOp::notify_peers_once() {
  if (std::exchange(peers_notified_, true)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (must_notify(Phase::posted, sequence_)) notify_peers(memory_);
}

// Writes this rank's signature and payload to its slot and publishes them. The payload holds, for alltoall, the bytes
// to and from each rank; then the blocks, if they fit.
void CollectiveOp::post_slot() {
  Slot& mine = slot(rank_);
  std::size_t at = 0;
  if (layout_.pattern == Pattern::alltoall) {
    for (const auto* side : {&layout_.send_blocks, &layout_.recv_blocks}) {
      for (std::size_t i = 0; i < side->size(); ++i) {
        const std::uint64_t bytes = (*side)[i].bytes();
        std::memcpy(mine.payload.data() + at, &bytes, sizeof bytes);
        at += sizeof bytes;
      }
    }
  }
  const std::size_t own = is_source(rank_) ? layout_.send_blocks.bytes() : 0;
  if (own == 0) {
    // No peer reads this rank's inputs.
  } else if (at + own <= kInlineBytes) {
    for (std::size_t i = 0; i < layout_.send_blocks.size(); ++i) {
      const SegmentList& block = layout_.send_blocks[i];
      block.for_each(0, block.bytes(), [&](const std::byte* data, std::size_t bytes, std::size_t) {
        std::memcpy(mine.payload.data() + at, data, bytes);
        at += bytes;
      });
    }
  } else {
    // Peers can access the inputs in place if they are contiguous in shared memory.
    const std::byte* const begin = layout_.send_blocks[0].contiguous();
    const std::byte* end = begin;
    for (std::size_t i = 0; i < layout_.send_blocks.size(); ++i) {
      const SegmentList& block = layout_.send_blocks[i];
      if (block.bytes() == 0) continue;
      end = end && block.contiguous() == end ? end + block.bytes() : nullptr;
    }
    const auto location = begin && end ? memory_.locate(begin, own) : std::nullopt;
    if (location) {
      signature_.inputs_shared = 1;
      signature_.shared_offset = location->offset;
      signature_.first_page = location->first_page;
      signature_.pages = location->pages;
    }
  }
  mine.signature = signature_;
  mine.sequence.store(sequence_, std::memory_order_release);
}

void CollectiveOp::compare_signatures() {
  for (int r = 0; r < size_; ++r) scratch_.signatures[static_cast<std::size_t>(r)] = slot(r).signature;
  const std::string mismatch = describe_mismatch(scratch_.signatures.data(), size_);
  if (!mismatch.empty()) {
    notify_peers_once();
    throw Mismatch(
        fmt::format("the ranks called different operations (number {} of lane {}): {}", sequence_, lane_, mismatch),
        backend::differing_ranks(scratch_.signatures.data(), size_));
  }
  if (layout_.pattern == Pattern::alltoall) {
    notify_peers_once();
    compare_splits();
  }
}

void CollectiveOp::compare_splits() {
  std::vector<const std::byte*> posted;
  posted.reserve(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) posted.push_back(slot(r).payload.data());
  std::vector<int> ranks;
  const std::string mismatch = backend::read_splits(posted, splits_, ranks);
  if (!mismatch.empty()) throw Mismatch(describe() + ": " + mismatch, ranks);
}

std::size_t CollectiveOp::block_bytes(int source, int target) const {
  if (layout_.pattern != Pattern::alltoall) return layout_.block_bytes;
  return splits_[static_cast<std::size_t>(source) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(target)];
}

std::size_t CollectiveOp::block_begin(int source, int target) const {
  if (!is_scattered(layout_.pattern)) return 0;
  if (layout_.pattern != Pattern::alltoall) return static_cast<std::size_t>(target) * layout_.block_bytes;
  std::size_t begin = 0;
  for (int t = 0; t < target; ++t) begin += block_bytes(source, t);
  return begin;
}

std::size_t CollectiveOp::bytes_sent_by(int source) const {
  return is_scattered(layout_.pattern) ? block_begin(source, size_) : layout_.block_bytes;
}

std::size_t CollectiveOp::slot_header_bytes() const {
  return layout_.pattern == Pattern::alltoall ? 2 * sizeof(std::uint64_t) * static_cast<std::size_t>(size_) : 0;
}

// All ranks decide from the same signatures and splits, so all select the same path.
void CollectiveOp::select_path() {
  bool fits = true;
  bool shared = true;
  for (int s = 0; s < size_; ++s) {
    if (!is_source(s)) continue;
    const int targets = layout_.pattern == Pattern::alltoall ? size_ : 1;  // blocks of other patterns have equal sizes
    for (int t = 0; t < targets; ++t) largest_block_ = std::max(largest_block_, block_bytes(s, t));
    fits = fits && slot_header_bytes() + bytes_sent_by(s) <= kInlineBytes;
    shared = shared && scratch_.signatures[static_cast<std::size_t>(s)].inputs_shared != 0;
  }
  if (fits) return;
  path_ = shared ? Path::direct : Path::staged;
  if (!shared && operation_.reader)
    throw InvalidArgument(describe() + ": a BlockReader requires inputs in memory of the group (group.empty())");
  if (is_scattered(layout_.pattern))
    chunk_bytes_ = kChunkBytes / static_cast<std::size_t>(size_) / kCacheLineBytes * kCacheLineBytes;
  if (path_ == Path::staged) return;
  for (int s = 0; s < size_; ++s) {
    if (!is_source(s)) continue;
    const auto i = static_cast<std::size_t>(s);
    if (s != rank_)
      mappings_.push_back(memory_.resolve(
          s, {scratch_.signatures[i].shared_offset, scratch_.signatures[i].first_page, scratch_.signatures[i].pages},
          bytes_sent_by(s)));
    scratch_.shared_blocks[i] = s == rank_ ? layout_.send_blocks[0].contiguous() : mappings_.back().get();
  }
}

std::byte* CollectiveOp::staging_data(int rank) const {
  return memory_.block(rank).staging[staging_buffer_index(lane_, round_)].data();
}

const std::byte* CollectiveOp::source_data(int rank, int target, std::size_t begin) const {
  if (path_ == Path::staged) {
    const std::size_t block = is_scattered(layout_.pattern) ? static_cast<std::size_t>(target) * chunk_bytes_ : 0;
    return staging_data(rank) + block + (begin - round_begin_);
  }
  if (path_ == Path::direct)
    return scratch_.shared_blocks[static_cast<std::size_t>(rank)] + block_begin(rank, target) + begin;
  return slot(rank).payload.data() + slot_header_bytes() + block_begin(rank, target) + begin;
}

}  // namespace hookline::local
