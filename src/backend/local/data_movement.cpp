// Data movement of collectives: fills staging buffers; copies and reduces from them or from the memory of peers.
#include <algorithm>
#include <atomic>

#include "backend/local/collective_op.hpp"
#include "kernel/copy.hpp"
#include "kernel/reduce.hpp"

namespace hookline::local {

void CollectiveOp::reduce(const std::byte* const* sources, std::initializer_list<std::byte*> destinations,
                          std::size_t bytes, kernel::StoreMode stores) const {
  kernel::reduce(operation_.op, layout_.dtype, {sources, static_cast<std::size_t>(size_)},
                 {destinations.begin(), destinations.size()}, bytes / size_of(layout_.dtype), stores);
}

kernel::StoreMode CollectiveOp::output_stores() const {
  const std::size_t written = layout_.recv_blocks.bytes();
  return written >= kernel::kStreamThresholdBytes ? kernel::StoreMode::streaming : kernel::StoreMode::cached;
}

// Copies one chunk of each of this rank's blocks to the staging buffer. Skips data that only this rank reads and can
// read from its own tensors.
void CollectiveOp::fill_staging(std::size_t begin) {
  if (!is_source(rank_)) return;
  std::byte* const to = staging_data(rank_);
  const kernel::StoreMode stores = staging_stores();
  const auto copy_range = [&](const SegmentList& from, std::size_t at, std::size_t bytes, std::byte* out) {
    from.for_each(at, bytes, [&](const std::byte* data, std::size_t n, std::size_t position) {
      kernel::copy(out + position, data, n, stores);
    });
  };
  if (is_scattered(layout_.pattern)) {
    for (int t = 0; t < size_; ++t) {
      const SegmentList& block = layout_.send_blocks[static_cast<std::size_t>(t)];
      if (t == rank_ && (layout_.pattern != Pattern::reduce_scatter || block.contiguous())) continue;
      copy_range(block, begin, chunk_bytes_, to + static_cast<std::size_t>(t) * chunk_bytes_);
    }
    return;
  }
  const SegmentList& block = layout_.send_blocks[0];
  if (!reduces_by_slices() || !block.contiguous()) {
    copy_range(block, begin, chunk_bytes_, to);
    return;
  }
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t round_bytes = std::min(chunk_bytes_, largest_block_ - begin);
  const std::size_t own = slice_begin(round_bytes, ranks, static_cast<std::size_t>(rank_));
  const std::size_t next = slice_begin(round_bytes, ranks, static_cast<std::size_t>(rank_) + 1);
  copy_range(block, begin, own, to);
  copy_range(block, begin + next, round_bytes - next, to + next);
}

// Reads [begin, begin + bytes) of every block that is sent to this rank.
void CollectiveOp::read_blocks(std::size_t begin, std::size_t bytes) {
  if (layout_.pattern == Pattern::none) return;
  if (operation_.reader) {
    std::array<const std::byte*, kMaxRanks> blocks;
    for (int s = 0; s < size_; ++s) blocks[static_cast<std::size_t>(s)] = source_data(s, rank_, begin);
    operation_.reader->read({blocks.data(), static_cast<std::size_t>(size_)}, bytes);
    return;
  }
  if (reduces(layout_.pattern)) {
    if (!receives_reduction()) return;
    const std::byte* own = nullptr;
    if (layout_.pattern == Pattern::reduce_scatter)
      own = layout_.send_blocks[static_cast<std::size_t>(rank_)].contiguous();
    layout_.recv_blocks[0].for_each(begin, bytes, [&](std::byte* out, std::size_t n, std::size_t position) {
      std::array<const std::byte*, kMaxRanks> sources;
      for (int s = 0; s < size_; ++s) {
        sources[static_cast<std::size_t>(s)] =
            s == rank_ && own ? own + begin + position : source_data(s, rank_, begin + position);
      }
      reduce(sources.data(), {out}, n, output_stores());
    });
    return;
  }
  for (int s = 0; s < size_; ++s) {
    if (!sends_to(layout_.pattern, s, rank_, operation_.root)) continue;
    const SegmentList& to = layout_.recv_blocks.for_rank(s);
    to.for_each(begin, bytes, [&](std::byte* out, std::size_t n, std::size_t position) {
      if (s != rank_) {
        kernel::copy(out, source_data(s, rank_, begin + position), n, output_stores());
        return;
      }
      const SegmentList& from = layout_.send_blocks.for_rank(rank_);
      from.for_each(begin + position, n, [&](const std::byte* data, std::size_t m, std::size_t at) {
        if (data != out + at) kernel::copy(out + at, data, m, output_stores());
      });
    });
  }
}

// Reduces this rank's slice of a round into its staging buffer, from which the peers copy it.
void CollectiveOp::reduce_slice(std::size_t begin, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t at = slice_begin(bytes, ranks, static_cast<std::size_t>(rank_));
  const std::size_t n = slice_begin(bytes, ranks, static_cast<std::size_t>(rank_) + 1) - at;
  if (n == 0) return;
  const std::byte* const own = layout_.send_blocks[0].contiguous();
  std::array<const std::byte*, kMaxRanks> sources;
  for (int s = 0; s < size_; ++s) {
    sources[static_cast<std::size_t>(s)] = s == rank_ && own ? own + begin + at : staging_data(s) + at;
  }
  std::byte* const out = receives_reduction() ? layout_.recv_blocks[0].contiguous() : nullptr;
  if (out && layout_.pattern == Pattern::reduce) {
    reduce(sources.data(), {out + begin + at}, n, kernel::StoreMode::cached);
  } else if (out && staging_stores() == kernel::StoreMode::streaming) {
    reduce(sources.data(), {out + begin + at}, n, kernel::StoreMode::cached);
    kernel::copy(staging_data(rank_) + at, out + begin + at, n, kernel::StoreMode::streaming);
  } else if (out) {
    reduce(sources.data(), {staging_data(rank_) + at, out + begin + at}, n, kernel::StoreMode::cached);
  } else {
    reduce(sources.data(), {staging_data(rank_) + at}, n, staging_stores());
  }
}

void CollectiveOp::copy_reduced_slices(std::size_t begin, std::size_t bytes) {
  if (!receives_reduction()) return;
  const auto ranks = static_cast<std::size_t>(size_);
  const SegmentList& to = layout_.recv_blocks[0];
  for (int s = 0; s < size_; ++s) {
    if (s == rank_ && to.contiguous()) continue;
    const std::size_t at = slice_begin(bytes, ranks, static_cast<std::size_t>(s));
    const std::size_t n = slice_begin(bytes, ranks, static_cast<std::size_t>(s) + 1) - at;
    to.write(begin + at, n, staging_data(s) + at);
  }
}

bool CollectiveOp::process_in_place(std::size_t begin, std::size_t bytes) {
  std::atomic<bool>& accessing = lane(rank_).accessing_peer;
  accessing.store(true, std::memory_order_seq_cst);
  const bool gone = any_peer_gone();
  if (!gone && reduces_by_slices()) reduce_in_place(begin, bytes);
  if (!gone && !reduces_by_slices()) read_blocks(begin, bytes);
  accessing.store(false, std::memory_order_seq_cst);
  return !gone;
}

// Reads all ranks' buffers and writes the result to all of them, or to the root's.
void CollectiveOp::reduce_in_place(std::size_t begin, std::size_t bytes) {
  std::array<const std::byte*, kMaxRanks> sources;
  std::array<std::byte*, kMaxRanks> destinations;
  for (int s = 0; s < size_; ++s) {
    const auto i = static_cast<std::size_t>(s);
    destinations[i] = scratch_.shared_blocks[i] + begin;
    sources[i] = destinations[i];
  }
  const auto ranks = static_cast<std::size_t>(size_);
  const bool to_root = layout_.pattern == Pattern::reduce;
  const auto root = static_cast<std::size_t>(operation_.root);
  kernel::reduce(operation_.op, layout_.dtype, {sources.data(), ranks},
                 {destinations.data() + (to_root ? root : 0), to_root ? 1 : ranks}, bytes / size_of(layout_.dtype));
}

}  // namespace hookline::local
