// Algorithms of large collectives. They move blocks in chunks, to overlap transfers with the reduction.
#include <algorithm>
#include <cstring>

#include "backend/p2p/collective_op.hpp"
#include "backend/p2p/p2p_context.hpp"
#include "kernel/copy.hpp"
#include "kernel/reduce.hpp"

namespace hookline::p2p {
namespace {

constexpr std::size_t kMaxChunkBytes = 1024 * 1024;
constexpr std::size_t kMinChunkBytes = 64 * 1024;
constexpr std::size_t kRecvWindow = 4;           // posted receives for each peer, from the chunk being reduced
constexpr std::uint64_t kMaxSendsInFlight = 12;  // sends in flight to each peer, ahead of the chunk being reduced
constexpr std::size_t kCopyChunkBytes = std::size_t{64} * 1024 * 1024;

constexpr std::uint64_t chunk_count(std::size_t bytes, std::size_t chunk_bytes) {
  return (bytes + chunk_bytes - 1) / chunk_bytes;
}

}  // namespace

CollectiveOp::Block CollectiveOp::contiguous_block(const backend::SegmentList& segments, bool pack, bool unpack) {
  if (segments.bytes() == 0) return {};
  if (std::byte* const whole = segments.contiguous()) return {whole, segments.bytes()};
  const Tensor memory = Tensor::empty({static_cast<std::int64_t>(segments.bytes())}, DType::u8);
  packed_.push_back({&segments, memory, unpack});
  std::byte* const packed = memory.mutable_bytes();
  if (pack) segments.read(0, segments.bytes(), packed);
  return {packed, segments.bytes()};
}

void CollectiveOp::unpack_blocks() {
  for (const PackedBlock& packed : packed_) {
    if (packed.unpack) packed.segments->write(0, packed.segments->bytes(), packed.memory.bytes());
  }
}

MessageTag CollectiveOp::data_tag(std::uint64_t chunk, int phase) const {
  return {3 + 2 * lane_, sequence_ << 24 | (2 * chunk + static_cast<std::uint64_t>(phase))};
}

std::unique_ptr<Request> CollectiveOp::send(int destination, std::uint64_t chunk, int phase, Block block) {
  set_peer(destination);
  return context().transport().send(destination, data_tag(chunk, phase), block.data, block.bytes);
}

std::unique_ptr<Request> CollectiveOp::receive(int source, std::uint64_t chunk, int phase, Block block) {
  set_peer(source);
  return context().transport().receive(source, data_tag(chunk, phase), block.data, block.bytes);
}

std::size_t CollectiveOp::request_index(std::uint64_t chunk, int rank) const {
  return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(rank);
}

// Copies this rank's block for itself.
void CollectiveOp::copy_local_block() {
  if (!backend::sends_to(layout_.pattern, rank_, rank_, operation().root)) return;
  const backend::SegmentList& from = layout_.send_blocks.for_rank(rank_);
  const backend::SegmentList& to = layout_.recv_blocks.for_rank(rank_);
  to.for_each(0, to.bytes(), [&](std::byte* out, std::size_t bytes, std::size_t position) {
    from.for_each(position, bytes, [&](const std::byte* data, std::size_t n, std::size_t begin) {
      if (data != out + begin) kernel::copy(out + begin, data, n);
    });
  });
}

// Pairwise exchange: each rank sends its blocks directly to their destinations.
StepCoroutine CollectiveOp::pairwise_exchange() {
  const Pattern pattern = layout_.pattern;
  const int root = operation().root;
  const Block shared_block = !backend::is_scattered(pattern) && is_source(rank_)
                                 ? contiguous_block(layout_.send_blocks[0], true, false)
                                 : Block{};
  std::vector<int> sources;
  std::vector<int> destinations;
  for (int i = 1; i < size_; ++i) {
    const int s = (rank_ + size_ - i) % size_;
    if (!backend::sends_to(pattern, s, rank_, root)) continue;
    const Block block = contiguous_block(layout_.recv_blocks.for_rank(s), false, true);
    for (std::uint64_t k = 0; k < chunk_count(block.bytes, kCopyChunkBytes); ++k) {
      const std::size_t offset = k * kCopyChunkBytes;
      sources.push_back(s);
      receives_.push_back(receive(s, k, 0, {block.data + offset, std::min(kCopyChunkBytes, block.bytes - offset)}));
    }
  }
  for (int i = 1; i < size_; ++i) {
    const int t = (rank_ + i) % size_;
    if (!backend::sends_to(pattern, rank_, t, root)) continue;
    const Block block = shared_block.data
                            ? shared_block
                            : contiguous_block(layout_.send_blocks[static_cast<std::size_t>(t)], true, false);
    for (std::uint64_t k = 0; k < chunk_count(block.bytes, kCopyChunkBytes); ++k) {
      const std::size_t offset = k * kCopyChunkBytes;
      destinations.push_back(t);
      sends_.push_back(send(t, k, 0, {block.data + offset, std::min(kCopyChunkBytes, block.bytes - offset)}));
    }
  }
  copy_local_block();
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    while (!test_request(receives_[i], sources[i])) co_await backend::kYield;
  }
  for (std::size_t i = 0; i < sends_.size(); ++i) {
    while (!test_request(sends_[i], destinations[i])) co_await backend::kYield;
  }
}

// Scatter + allgather (van de Geijn): the root sends a slice to each other rank, then these ranks exchange their
// slices. Each rank sends every byte about once; a flat broadcast would send N - 1 copies from the root.
StepCoroutine CollectiveOp::scatter_allgather_broadcast() {
  const int root = operation().root;
  const bool is_root = rank_ == root;
  const Block whole = contiguous_block(layout_.recv_blocks[0], is_root, !is_root);
  const auto num_slices = static_cast<std::size_t>(size_ - 1);
  const auto slice = [&](int rank) {
    const auto i = static_cast<std::size_t>(rank < root ? rank : rank - 1);
    const std::size_t begin = backend::slice_begin(whole.bytes, num_slices, i);
    return Block{whole.data + begin, backend::slice_begin(whole.bytes, num_slices, i + 1) - begin};
  };
  const auto chunk = [&](Block block, std::uint64_t k) {
    return Block{block.data + k * kMaxChunkBytes, std::min(kMaxChunkBytes, block.bytes - k * kMaxChunkBytes)};
  };
  std::vector<int> destinations;
  if (is_root) {
    std::uint64_t max_chunks = 0;
    for (int r = 0; r < size_; ++r)
      max_chunks = std::max(max_chunks, r == root ? 0 : chunk_count(slice(r).bytes, kMaxChunkBytes));
    for (std::uint64_t k = 0; k < max_chunks; ++k) {
      for (int r = 0; r < size_; ++r) {
        if (r == root || k * kMaxChunkBytes >= slice(r).bytes) continue;
        destinations.push_back(r);
        sends_.push_back(send(r, k, 0, chunk(slice(r), k)));
      }
    }
  } else {
    const Block own_slice = slice(rank_);
    const std::uint64_t count = chunk_count(own_slice.bytes, kMaxChunkBytes);
    for (std::uint64_t k = 0; k < count; ++k) receives_.push_back(receive(root, k, 0, chunk(own_slice, k)));
    std::vector<int> sources;
    for (int i = 1; i < size_; ++i) {
      const int r = (rank_ + i) % size_;
      if (r == root) continue;
      for (std::uint64_t k = 0; k < chunk_count(slice(r).bytes, kMaxChunkBytes); ++k) {
        sources.push_back(r);
        result_receives_.push_back(receive(r, k, 1, chunk(slice(r), k)));
      }
    }
    for (std::uint64_t k = 0; k < count; ++k) {
      while (!test_request(receives_[k], root)) co_await backend::kYield;
      for (int i = 1; i < size_; ++i) {
        const int r = (rank_ + i) % size_;
        if (r == root) continue;
        destinations.push_back(r);
        sends_.push_back(send(r, k, 1, chunk(own_slice, k)));
      }
    }
    for (std::size_t i = 0; i < result_receives_.size(); ++i) {
      while (!test_request(result_receives_[i], sources[i])) co_await backend::kYield;
    }
  }
  for (std::size_t i = 0; i < sends_.size(); ++i) {
    while (!test_request(sends_[i], destinations[i])) co_await backend::kYield;
  }
}

// Direct reduce-scatter, then allgather (or gather to the root): each rank receives its slice from all ranks and
// reduces in rank order. It moves as many bytes as a ring, and the fixed order makes the result bitwise deterministic.
StepCoroutine CollectiveOp::direct_reduce() {
  const bool scatter = layout_.pattern == Pattern::reduce_scatter;
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t max_bytes =
      std::clamp(4 * kMaxChunkBytes / std::max<std::size_t>(ranks - 1, 1), kMinChunkBytes, kMaxChunkBytes);
  const std::size_t chunk_bytes =
      max_bytes / backend::kCacheLineBytes * backend::kCacheLineBytes;  // whole elements, of any dtype
  const Block whole = scatter ? Block{} : contiguous_block(layout_.recv_blocks[0], true, receives_result());
  std::vector<Block> inputs;  // this rank's input for each slice
  std::uint64_t max_chunks = 0;
  for (std::size_t t = 0; t < ranks; ++t) {
    if (scatter) {
      inputs.push_back(contiguous_block(layout_.send_blocks[t], true, false));
    } else {
      const std::size_t begin = backend::slice_begin(whole.bytes, ranks, t);
      inputs.push_back({whole.data + begin, backend::slice_begin(whole.bytes, ranks, t + 1) - begin});
    }
    max_chunks = std::max(max_chunks, chunk_count(inputs[t].bytes, chunk_bytes));
  }
  const Block own_slice = inputs[static_cast<std::size_t>(rank_)];
  const auto chunk = [&](Block block, std::uint64_t k) {
    return Block{block.data + k * chunk_bytes, std::min(chunk_bytes, block.bytes - k * chunk_bytes)};
  };
  const std::uint64_t count = chunk_count(own_slice.bytes, chunk_bytes);

  const std::size_t window_bytes = (ranks - 1) * std::min<std::size_t>(kRecvWindow, count) * chunk_bytes;
  const bool separate_result =
      !scatter && !receives_result();  // ranks that receive no result must not overwrite their input
  scratch_ =
      Tensor::empty({static_cast<std::int64_t>(window_bytes + (separate_result ? own_slice.bytes : 0))}, DType::u8);
  Block result = own_slice;
  if (scatter) result = contiguous_block(layout_.recv_blocks[0], false, true);
  if (separate_result) result.data = scratch_.mutable_bytes() + window_bytes;
  const auto recv_chunk = [&](std::uint64_t k, int r) {
    const auto slot = static_cast<std::size_t>(r < rank_ ? r : r - 1) + (k % kRecvWindow) * (ranks - 1);
    return Block{scratch_.mutable_bytes() + slot * chunk_bytes, chunk(own_slice, k).bytes};
  };
  const auto post_receives = [&](std::uint64_t k) {
    for (int i = 1; k < count && i < size_; ++i) {
      const int r = (rank_ + size_ - i) % size_;
      receives_[request_index(k, r)] = receive(r, k, 0, recv_chunk(k, r));
    }
  };
  receives_.resize(request_index(count, 0));
  sends_.resize(request_index(max_chunks, 0));
  result_sends_.resize(request_index(count, 0));
  result_receives_.resize(request_index(max_chunks, 0));
  for (std::uint64_t k = 0; k < kRecvWindow; ++k) post_receives(k);

  std::vector<const std::byte*> sources(ranks);
  std::uint64_t chunks_sent = 0;
  for (std::uint64_t k = 0; k < max_chunks; ++k) {
    for (; chunks_sent < max_chunks && chunks_sent <= k + kMaxSendsInFlight; ++chunks_sent) {
      for (int i = 1; i < size_; ++i) {
        const int r = (rank_ + i) % size_;
        const Block input = inputs[static_cast<std::size_t>(r)];
        if (chunks_sent * chunk_bytes < input.bytes)
          sends_[request_index(chunks_sent, r)] = send(r, chunks_sent, 0, chunk(input, chunks_sent));
      }
    }
    if (k < count) {
      for (int r = 0; r < size_; ++r) {
        while (!test_request(receives_[request_index(k, r)], r)) co_await backend::kYield;
        receives_[request_index(k, r)].reset();
        sources[static_cast<std::size_t>(r)] = r == rank_ ? chunk(own_slice, k).data : recv_chunk(k, r).data;
      }
      const Block out = chunk(result, k);
      kernel::reduce(operation().op, layout_.dtype, sources, {&out.data, 1}, out.bytes / size_of(layout_.dtype));
      post_receives(k + kRecvWindow);
      for (int i = 1; !scatter && i < size_; ++i) {
        const int r = (rank_ + i) % size_;
        if (layout_.pattern == Pattern::reduce && r != operation().root) continue;
        result_sends_[request_index(k, r)] = send(r, k, 1, out);
      }
    }
    // Receives each peer's result into the slice of the input that was sent to that peer.
    for (int i = 1; i < size_; ++i) {
      const int r = (rank_ + i) % size_;
      const Block input = inputs[static_cast<std::size_t>(r)];
      if (k * chunk_bytes >= input.bytes) continue;
      while (!test_request(sends_[request_index(k, r)], r)) co_await backend::kYield;
      sends_[request_index(k, r)].reset();
      if (!scatter && receives_result()) result_receives_[request_index(k, r)] = receive(r, k, 1, chunk(input, k));
    }
  }
  for (auto* const requests : {&result_receives_, &result_sends_}) {
    for (std::size_t i = 0; i < requests->size(); ++i) {
      while (!test_request((*requests)[i], static_cast<int>(i % ranks))) co_await backend::kYield;
    }
  }
}

}  // namespace hookline::p2p
