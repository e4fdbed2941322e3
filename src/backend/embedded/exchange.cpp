// The protocol of a collective: post and compare signatures, then move data inline, in place or staged.
#include "backend/embedded/exchange.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/embedded/bell.hpp"

namespace hookline::embedded {

Exchange::Exchange(Memory& memory, int lane, Scratch& scratch, const Collective& collective)
    : memory_(memory),
      lane_(lane),
      rank_(memory.rank()),
      size_(memory.size()),
      collective_(collective),
      scratch_(scratch),
      parts_(backend::cut(collective_, rank_, size_)),
      call_(call_of(collective_, parts_)) {}

bool Exchange::fits_slots() const {
  return parts_.motion != Motion::alltoall && given(collective_.root) <= kInlineBytes;
}

Steps Exchange::run(std::uint64_t number, std::uint64_t first_round) {
  number_ = number;
  round_ = first_round;
  take_in(parts_);
  post();
  while (!reached(Word::number, number_)) {
    ring_once();
    co_await kBlocked;
  }
  compare();
  choose();

  if (mode_ == Mode::inlined) {
    pull(0, largest_block_);
    ring_once();
  } else if (mode_ == Mode::direct) {
    ring_once();
    // Every rank works through its share, then waits: what it gave is being read until all are through.
    const auto ranks = static_cast<std::size_t>(size_);
    const auto me = static_cast<std::size_t>(rank_);
    const std::size_t begin = reduces_slices() ? slice_begin(largest_block_, ranks, me) : 0;
    const std::size_t end = reduces_slices() ? slice_begin(largest_block_, ranks, me + 1) : largest_block_;
    const std::size_t stride = collective_.reader ? std::max<std::size_t>(end, 1) : kChunkBytes;
    for (std::size_t at = begin; at < end; at += stride) {
      // Who is gone may have taken its memory away from this group: no more is written to it, …
      while (!move_in_place(at, std::min(stride, end - at))) co_await kBlocked;
      ++moves_;
      co_await kBlocked;
    }
    // … and what was read of it need not be what it gave: nobody leaves before all are through, unless it fails.
    while (anybody_gone()) co_await kBlocked;
    rounds_ = 1;
    lane(rank_).filled.store(round_ + 1, std::memory_order_release);
    lane(rank_).reduced.store(round_ + 1, std::memory_order_release);
    publish(Word::drained, round_ + 1);
    while (!reached(Word::drained, round_ + 1)) co_await kBlocked;
  } else {
    ring_once();
    rounds_ = (largest_block_ + chunk_ - 1) / chunk_;
    for (std::uint64_t k = 0; k < rounds_; ++k, ++round_) {
      round_begin_ = k * chunk_;
      const bool timed = scratch_.pace.is_timed(round_) && largest_block_ - round_begin_ >= chunk_;
      const Clock::time_point began = timed ? Clock::now() : Clock::time_point();
      fill(round_begin_);
      publish(Word::filled, round_ + 1);
      while (!reached(Word::filled, round_ + 1)) co_await kBlocked;
      const std::size_t part = std::min(chunk_, largest_block_ - round_begin_);
      if (reduces_slices()) {
        reduce_slice(round_begin_, part);
        publish(Word::reduced, round_ + 1);
        while (!reached(Word::reduced, round_ + 1)) co_await kBlocked;
        drain_slices(round_begin_, part);
      } else {
        pull(round_begin_, part);
      }
      if (timed) scratch_.pace.note(round_, Clock::now() - began);
    }
    lane(rank_).reduced.store(round_, std::memory_order_release);
    lane(rank_).drained.store(round_, std::memory_order_release);
  }
  give_back(parts_);
}

bool Exchange::anybody_gone() const {
  for (int r = 0; r < size_; ++r) {
    if (memory_.block(r).standing.load(std::memory_order_seq_cst) != Standing::present) return true;
  }
  return false;
}

Counter& Exchange::word(int rank, Word which) const {
  switch (which) {
    case Word::number: return slot(rank).number;
    case Word::filled: return lane(rank).filled;
    case Word::reduced: return lane(rank).reduced;
    case Word::drained: break;
  }
  return lane(rank).drained;
}

bool Exchange::reached(Word which, std::uint64_t value) {
  awaited_word_ = which;
  awaited_value_ = value;
  for (int r = 0; r < size_; ++r) {
    if (word(r, which).load(std::memory_order_acquire) < value) return false;
  }
  ++moves_;
  return true;
}

std::vector<int> Exchange::awaited() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    const bool left = memory_.block(r).standing.load(std::memory_order_seq_cst) == Standing::left;
    const bool missing = word(r, awaited_word_).load(std::memory_order_acquire) < awaited_value_;
    if (missing || (mode_ == Mode::direct && left)) ranks.push_back(r);
  }
  return ranks;
}

// Peers wait until all ranks have come to a value, so only the last one needs to wake them; otherwise, in a large group
// each rank is woken by each other one. Dekker handshake, all seq_cst: each rank stores its word, then loads those of
// all. The last to store sees that all have come. In a small group another look at the peers' words, which are just
// being written, costs more than waking in vain.
bool Exchange::must_ring(Word which, std::uint64_t value) const {
  constexpr int kSmallGroup = 16;
  if (size_ <= kSmallGroup) return true;
  for (int r = 0; r < size_; ++r) {
    if (word(r, which).load(std::memory_order_seq_cst) < value) return false;
  }
  return true;
}

void Exchange::publish(Word which, std::uint64_t value) {
  word(rank_, which).store(value, std::memory_order_seq_cst);
  if (must_ring(which, value)) ring_peers(memory_);
}

// Storing the number is not enough for a peer that sleeps, but ringing needs what was stored to be seen first, and that
// takes as long as it takes the peers to let go of the lines of the slot. Where no rank sleeps, as a rule, a small
// operation is through by then.
void Exchange::ring_once() {
  if (std::exchange(rung_, true)) return;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (must_ring(Word::number, number_)) ring_peers(memory_);
}

// The payload of a slot: for alltoall, how many bytes go to and come from each rank; then the blocks, where they fit.
void Exchange::post() {
  Slot& mine = slot(rank_);
  std::size_t at = 0;
  if (parts_.motion == Motion::alltoall) {
    for (const auto* side : {&parts_.give, &parts_.take}) {
      for (std::size_t i = 0; i < side->size(); ++i) {
        const std::uint64_t bytes = (*side)[i].bytes();
        std::memcpy(mine.payload.data() + at, &bytes, sizeof bytes);
        at += sizeof bytes;
      }
    }
  }
  const std::size_t own = is_source(rank_) ? parts_.give.bytes() : 0;
  if (own == 0) {
    // nothing of this rank's is read
  } else if (at + own <= kInlineBytes) {
    for (std::size_t i = 0; i < parts_.give.size(); ++i) {
      const Stream& block = parts_.give[i];
      block.for_each(0, block.bytes(), [&](const std::byte* data, std::size_t bytes, std::size_t) {
        std::memcpy(mine.payload.data() + at, data, bytes);
        at += bytes;
      });
    }
  } else {
    // The peers can read it where it is if all of it lies in one piece of shared memory.
    const std::byte* const begin = parts_.give[0].contiguous();
    const std::byte* end = begin;
    for (std::size_t i = 0; i < parts_.give.size(); ++i) {
      const Stream& block = parts_.give[i];
      if (block.bytes() == 0) continue;
      end = end && block.contiguous() == end ? end + block.bytes() : nullptr;
    }
    const auto place = begin && end ? memory_.locate(begin, own) : std::nullopt;
    if (place) {
      call_.sources_shared = 1;
      call_.offset = place->offset;
      call_.first_page = place->first_page;
      call_.pages = place->pages;
    }
  }
  mine.call = call_;
  mine.number.store(number_, std::memory_order_release);
}

void Exchange::compare() {
  for (int r = 0; r < size_; ++r) scratch_.calls[static_cast<std::size_t>(r)] = slot(r).call;
  const std::string differing = difference(scratch_.calls.data(), size_);
  if (!differing.empty()) {
    ring_once();
    throw Mismatch(
        fmt::format("the ranks did not call the same operation (number {} of lane {}): {}", number_, lane_, differing),
        backend::differing_ranks(scratch_.calls.data(), size_));
  }
  if (parts_.motion == Motion::alltoall) {
    ring_once();
    compare_splits();
  }
}

void Exchange::compare_splits() {
  std::vector<const std::byte*> posted;
  posted.reserve(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) posted.push_back(slot(r).payload.data());
  std::vector<int> ranks;
  const std::string differing = backend::read_splits(posted, splits_, ranks);
  if (!differing.empty()) throw Mismatch(describe() + ": " + differing, ranks);
}

std::size_t Exchange::block_bytes(int source, int target) const {
  if (parts_.motion != Motion::alltoall) return parts_.block_bytes;
  return splits_[static_cast<std::size_t>(source) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(target)];
}

std::size_t Exchange::block_begin(int source, int target) const {
  if (!has_block_per_rank(parts_.motion)) return 0;
  if (parts_.motion != Motion::alltoall) return static_cast<std::size_t>(target) * parts_.block_bytes;
  std::size_t begin = 0;
  for (int t = 0; t < target; ++t) begin += block_bytes(source, t);
  return begin;
}

std::size_t Exchange::given(int source) const {
  return has_block_per_rank(parts_.motion) ? block_begin(source, size_) : parts_.block_bytes;
}

std::size_t Exchange::head_bytes() const {
  return parts_.motion == Motion::alltoall ? 2 * sizeof(std::uint64_t) * static_cast<std::size_t>(size_) : 0;
}

// All ranks decide from the same words, so all decide alike.
void Exchange::choose() {
  bool fits = true;
  bool shared = true;
  for (int s = 0; s < size_; ++s) {
    if (!is_source(s)) continue;
    const int targets = parts_.motion == Motion::alltoall ? size_ : 1;  // of others, all blocks are alike
    for (int t = 0; t < targets; ++t) largest_block_ = std::max(largest_block_, block_bytes(s, t));
    fits = fits && head_bytes() + given(s) <= kInlineBytes;
    shared = shared && scratch_.calls[static_cast<std::size_t>(s)].sources_shared != 0;
  }
  if (fits) return;
  mode_ = shared ? Mode::direct : Mode::staged;
  if (!shared && collective_.reader)
    throw InvalidArgument(describe() + ": a BlockReader requires inputs in memory of the group (group.empty())");
  if (has_block_per_rank(parts_.motion))
    chunk_ = kChunkBytes / static_cast<std::size_t>(size_) / kCacheLine * kCacheLine;
  if (mode_ == Mode::staged) return;
  for (int s = 0; s < size_; ++s) {
    if (!is_source(s)) continue;
    const auto i = static_cast<std::size_t>(s);
    if (s != rank_)
      mappings_.push_back(memory_.resolve(
          s, {scratch_.calls[i].offset, scratch_.calls[i].first_page, scratch_.calls[i].pages}, given(s)));
    scratch_.shared[i] = s == rank_ ? parts_.give[0].contiguous() : mappings_.back().get();
  }
}

std::byte* Exchange::staging(int rank) const {
  return memory_.block(rank).staging[staging_buffer(lane_, round_)].data();
}

const std::byte* Exchange::source(int rank, int target, std::size_t begin) const {
  if (mode_ == Mode::staged) {
    const std::size_t block = has_block_per_rank(parts_.motion) ? static_cast<std::size_t>(target) * chunk_ : 0;
    return staging(rank) + block + (begin - round_begin_);
  }
  if (mode_ == Mode::direct) return scratch_.shared[static_cast<std::size_t>(rank)] + block_begin(rank, target) + begin;
  return slot(rank).payload.data() + head_bytes() + block_begin(rank, target) + begin;
}

}  // namespace hookline::embedded
