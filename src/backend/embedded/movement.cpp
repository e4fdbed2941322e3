// Data movement of collectives: fills staging buffers; copies and reduces from them or from the memory of peers.
#include <algorithm>
#include <atomic>

#include "backend/embedded/exchange.hpp"
#include "kernel/copy.hpp"
#include "kernel/reduce.hpp"

namespace hookline::embedded {

void Exchange::reduce(const std::byte* const* sources, std::initializer_list<std::byte*> destinations,
                      std::size_t bytes, kernel::Stores stores) const {
  kernel::reduce(collective_.op, parts_.dtype, {sources, static_cast<std::size_t>(size_)},
                 {destinations.begin(), destinations.size()}, bytes / size_of(parts_.dtype), stores);
}

kernel::Stores Exchange::output_stores() const {
  const std::size_t written = parts_.take.bytes();
  return written >= kernel::kStreamFrom ? kernel::Stores::streaming : kernel::Stores::cached;
}

// What nobody but this rank needs of its own blocks is left out, where it can be read in place instead.
void Exchange::fill(std::size_t begin) {
  if (!is_source(rank_)) return;
  std::byte* const to = staging(rank_);
  const kernel::Stores stores = staging_stores();
  const auto copy_range = [&](const Stream& from, std::size_t at, std::size_t bytes, std::byte* out) {
    from.for_each(at, bytes, [&](const std::byte* data, std::size_t n, std::size_t position) {
      kernel::copy(out + position, data, n, stores);
    });
  };
  if (has_block_per_rank(parts_.motion)) {
    for (int t = 0; t < size_; ++t) {
      const Stream& block = parts_.give[static_cast<std::size_t>(t)];
      if (t == rank_ && (parts_.motion != Motion::reduce_scatter || block.contiguous())) continue;
      copy_range(block, begin, chunk_, to + static_cast<std::size_t>(t) * chunk_);
    }
    return;
  }
  const Stream& block = parts_.give[0];
  if (!reduces_slices() || !block.contiguous()) {
    copy_range(block, begin, chunk_, to);
    return;
  }
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t part = std::min(chunk_, largest_block_ - begin);
  const std::size_t own = slice_begin(part, ranks, static_cast<std::size_t>(rank_));
  const std::size_t next = slice_begin(part, ranks, static_cast<std::size_t>(rank_) + 1);
  copy_range(block, begin, own, to);
  copy_range(block, begin + next, part - next, to + next);
}

// Takes [begin, begin + bytes) of every block that is for this rank from where its sources have laid it.
void Exchange::pull(std::size_t begin, std::size_t bytes) {
  if (parts_.motion == Motion::none) return;
  if (collective_.reader) {
    std::array<const std::byte*, kMaxRanks> blocks;
    for (int s = 0; s < size_; ++s) blocks[static_cast<std::size_t>(s)] = source(s, rank_, begin);
    collective_.reader->read({blocks.data(), static_cast<std::size_t>(size_)}, bytes);
    return;
  }
  if (reduces(parts_.motion)) {
    if (!takes_reduction()) return;
    const std::byte* own = nullptr;
    if (parts_.motion == Motion::reduce_scatter) own = parts_.give[static_cast<std::size_t>(rank_)].contiguous();
    parts_.take[0].for_each(begin, bytes, [&](std::byte* out, std::size_t n, std::size_t position) {
      std::array<const std::byte*, kMaxRanks> sources;
      for (int s = 0; s < size_; ++s) {
        sources[static_cast<std::size_t>(s)] =
            s == rank_ && own ? own + begin + position : source(s, rank_, begin + position);
      }
      reduce(sources.data(), {out}, n, output_stores());
    });
    return;
  }
  for (int s = 0; s < size_; ++s) {
    if (!gives(parts_.motion, s, rank_, collective_.root)) continue;
    const Stream& to = parts_.take.of(s);
    to.for_each(begin, bytes, [&](std::byte* out, std::size_t n, std::size_t position) {
      if (s != rank_) {
        kernel::copy(out, source(s, rank_, begin + position), n, output_stores());
        return;
      }
      const Stream& from = parts_.give.of(rank_);
      from.for_each(begin + position, n, [&](const std::byte* data, std::size_t m, std::size_t at) {
        if (data != out + at) kernel::copy(out + at, data, m, output_stores());
      });
    });
  }
}

// The slices of a round: each rank reduces its own into its staging buffer, where the others fetch it.
void Exchange::reduce_slice(std::size_t begin, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t at = slice_begin(bytes, ranks, static_cast<std::size_t>(rank_));
  const std::size_t n = slice_begin(bytes, ranks, static_cast<std::size_t>(rank_) + 1) - at;
  if (n == 0) return;
  const std::byte* const own = parts_.give[0].contiguous();
  std::array<const std::byte*, kMaxRanks> sources;
  for (int s = 0; s < size_; ++s) {
    sources[static_cast<std::size_t>(s)] = s == rank_ && own ? own + begin + at : staging(s) + at;
  }
  std::byte* const out = takes_reduction() ? parts_.take[0].contiguous() : nullptr;
  if (out && parts_.motion == Motion::reduce) {
    reduce(sources.data(), {out + begin + at}, n, kernel::Stores::cached);
  } else if (out && staging_stores() == kernel::Stores::streaming) {
    reduce(sources.data(), {out + begin + at}, n, kernel::Stores::cached);
    kernel::copy(staging(rank_) + at, out + begin + at, n, kernel::Stores::streaming);
  } else if (out) {
    reduce(sources.data(), {staging(rank_) + at, out + begin + at}, n, kernel::Stores::cached);
  } else {
    reduce(sources.data(), {staging(rank_) + at}, n, staging_stores());
  }
}

void Exchange::drain_slices(std::size_t begin, std::size_t bytes) {
  if (!takes_reduction()) return;
  const auto ranks = static_cast<std::size_t>(size_);
  const Stream& to = parts_.take[0];
  for (int s = 0; s < size_; ++s) {
    if (s == rank_ && to.contiguous()) continue;
    const std::size_t at = slice_begin(bytes, ranks, static_cast<std::size_t>(s));
    const std::size_t n = slice_begin(bytes, ranks, static_cast<std::size_t>(s) + 1) - at;
    to.write(begin + at, n, staging(s) + at);
  }
}

bool Exchange::move_in_place(std::size_t begin, std::size_t bytes) {
  std::atomic<bool>& reaching = lane(rank_).reaching;
  reaching.store(true, std::memory_order_seq_cst);
  const bool gone = anybody_gone();
  if (!gone && reduces_slices()) reduce_in_place(begin, bytes);
  if (!gone && !reduces_slices()) pull(begin, bytes);
  reaching.store(false, std::memory_order_seq_cst);
  return !gone;
}

// Reads all ranks' buffers and writes the result to all of them, or to the root's.
void Exchange::reduce_in_place(std::size_t begin, std::size_t bytes) {
  std::array<const std::byte*, kMaxRanks> sources;
  std::array<std::byte*, kMaxRanks> destinations;
  for (int s = 0; s < size_; ++s) {
    const auto i = static_cast<std::size_t>(s);
    destinations[i] = scratch_.shared[i] + begin;
    sources[i] = destinations[i];
  }
  const auto ranks = static_cast<std::size_t>(size_);
  const bool to_root = parts_.motion == Motion::reduce;
  const auto root = static_cast<std::size_t>(collective_.root);
  kernel::reduce(collective_.op, parts_.dtype, {sources.data(), ranks},
                 {destinations.data() + (to_root ? root : 0), to_root ? 1 : ranks}, bytes / size_of(parts_.dtype));
}

}  // namespace hookline::embedded
