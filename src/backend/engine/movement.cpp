// Algorithms of large collectives. They move blocks in chunks, to overlap transfers with the reduction.
#include <algorithm>
#include <cstring>

#include "backend/engine/exchange.hpp"
#include "backend/engine/station.hpp"
#include "kernel/copy.hpp"
#include "kernel/reduce.hpp"

namespace hookline::engine {
namespace {

constexpr std::size_t kLargestPart = 1024 * 1024;
constexpr std::size_t kSmallestPart = 64 * 1024;
constexpr std::size_t kWindow = 4;    // posted receives for each peer, from the chunk being reduced
constexpr std::uint64_t kAhead = 12;  // sends in flight to each peer, ahead of the chunk being reduced
constexpr std::size_t kCopyPart = std::size_t{64} * 1024 * 1024;

constexpr std::uint64_t parts_of(std::size_t bytes, std::size_t part) { return (bytes + part - 1) / part; }

}  // namespace

Exchange::Flat Exchange::flat(const backend::Stream& stream, bool give, bool take) {
  if (stream.bytes() == 0) return {};
  if (std::byte* const whole = stream.contiguous()) return {whole, stream.bytes()};
  const Tensor memory = Tensor::empty({static_cast<std::int64_t>(stream.bytes())}, DType::u8);
  packed_.push_back({&stream, memory, take});
  std::byte* const to = memory.mutable_bytes();
  if (give) stream.read(0, stream.bytes(), to);
  return {to, stream.bytes()};
}

void Exchange::unpack() {
  for (const Packed& packed : packed_) {
    if (packed.take) packed.stream->write(0, packed.stream->bytes(), packed.memory.bytes());
  }
}

MessageAddress Exchange::data_address(std::uint64_t index, int phase) const {
  return {3 + 2 * lane_, number_ << 24 | (2 * index + static_cast<std::uint64_t>(phase))};
}

std::unique_ptr<Message> Exchange::send(int to, std::uint64_t index, int phase, Flat part) {
  turn_to(to);
  return station().engine().send(to, data_address(index, phase), part.data, part.bytes);
}

std::unique_ptr<Message> Exchange::receive(int from, std::uint64_t index, int phase, Flat part) {
  turn_to(from);
  return station().engine().receive(from, data_address(index, phase), part.data, part.bytes);
}

std::size_t Exchange::at(std::uint64_t index, int rank) const {
  return static_cast<std::size_t>(index) * static_cast<std::size_t>(size_) + static_cast<std::size_t>(rank);
}

// Copies this rank's block for itself.
void Exchange::copy_own() {
  if (!backend::gives(parts_.motion, rank_, rank_, collective().root)) return;
  const backend::Stream& from = parts_.give.of(rank_);
  const backend::Stream& to = parts_.take.of(rank_);
  to.for_each(0, to.bytes(), [&](std::byte* out, std::size_t bytes, std::size_t position) {
    from.for_each(position, bytes, [&](const std::byte* data, std::size_t n, std::size_t begin) {
      if (data != out + begin) kernel::copy(out + begin, data, n);
    });
  });
}

// Pairwise exchange: each rank sends its blocks directly to their destinations.
Steps Exchange::copy_blocks() {
  const Motion motion = parts_.motion;
  const int root = collective().root;
  const Flat all =
      !backend::has_block_per_rank(motion) && is_source(rank_) ? flat(parts_.give[0], true, false) : Flat{};
  std::vector<int> from;
  std::vector<int> to;
  for (int i = 1; i < size_; ++i) {
    const int s = (rank_ + size_ - i) % size_;
    if (!backend::gives(motion, s, rank_, root)) continue;
    const Flat block = flat(parts_.take.of(s), false, true);
    for (std::uint64_t k = 0; k < parts_of(block.bytes, kCopyPart); ++k) {
      const std::size_t begin = k * kCopyPart;
      from.push_back(s);
      received_.push_back(receive(s, k, 0, {block.data + begin, std::min(kCopyPart, block.bytes - begin)}));
    }
  }
  for (int i = 1; i < size_; ++i) {
    const int t = (rank_ + i) % size_;
    if (!backend::gives(motion, rank_, t, root)) continue;
    const Flat block = all.data ? all : flat(parts_.give[static_cast<std::size_t>(t)], true, false);
    for (std::uint64_t k = 0; k < parts_of(block.bytes, kCopyPart); ++k) {
      const std::size_t begin = k * kCopyPart;
      to.push_back(t);
      sent_.push_back(send(t, k, 0, {block.data + begin, std::min(kCopyPart, block.bytes - begin)}));
    }
  }
  copy_own();
  for (std::size_t i = 0; i < received_.size(); ++i) {
    while (!through(received_[i], from[i])) co_await backend::kBlocked;
  }
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    while (!through(sent_[i], to[i])) co_await backend::kBlocked;
  }
}

// Scatter + allgather (van de Geijn): the root sends a slice to each other rank, then these ranks exchange their
// slices. Each rank sends every byte about once; a flat broadcast would send N - 1 copies from the root.
Steps Exchange::broadcast_slices() {
  const int root = collective().root;
  const bool gives = rank_ == root;
  const Flat whole = flat(parts_.take[0], gives, !gives);
  const auto others = static_cast<std::size_t>(size_ - 1);
  const auto slice = [&](int rank) {
    const auto i = static_cast<std::size_t>(rank < root ? rank : rank - 1);
    const std::size_t begin = backend::slice_begin(whole.bytes, others, i);
    return Flat{whole.data + begin, backend::slice_begin(whole.bytes, others, i + 1) - begin};
  };
  const auto part = [&](Flat all, std::uint64_t k) {
    return Flat{all.data + k * kLargestPart, std::min(kLargestPart, all.bytes - k * kLargestPart)};
  };
  std::vector<int> to;
  if (gives) {
    std::uint64_t most = 0;
    for (int r = 0; r < size_; ++r) most = std::max(most, r == root ? 0 : parts_of(slice(r).bytes, kLargestPart));
    for (std::uint64_t k = 0; k < most; ++k) {
      for (int r = 0; r < size_; ++r) {
        if (r == root || k * kLargestPart >= slice(r).bytes) continue;
        to.push_back(r);
        sent_.push_back(send(r, k, 0, part(slice(r), k)));
      }
    }
  } else {
    const Flat mine = slice(rank_);
    const std::uint64_t count = parts_of(mine.bytes, kLargestPart);
    for (std::uint64_t k = 0; k < count; ++k) received_.push_back(receive(root, k, 0, part(mine, k)));
    std::vector<int> from;
    for (int i = 1; i < size_; ++i) {
      const int r = (rank_ + i) % size_;
      if (r == root) continue;
      for (std::uint64_t k = 0; k < parts_of(slice(r).bytes, kLargestPart); ++k) {
        from.push_back(r);
        results_received_.push_back(receive(r, k, 1, part(slice(r), k)));
      }
    }
    for (std::uint64_t k = 0; k < count; ++k) {
      while (!through(received_[k], root)) co_await backend::kBlocked;
      for (int i = 1; i < size_; ++i) {
        const int r = (rank_ + i) % size_;
        if (r == root) continue;
        to.push_back(r);
        sent_.push_back(send(r, k, 1, part(mine, k)));
      }
    }
    for (std::size_t i = 0; i < results_received_.size(); ++i) {
      while (!through(results_received_[i], from[i])) co_await backend::kBlocked;
    }
  }
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    while (!through(sent_[i], to[i])) co_await backend::kBlocked;
  }
}

// Direct reduce-scatter, then allgather (or gather to the root): each rank receives its slice from all ranks and
// reduces in rank order. It moves as many bytes as a ring, and the fixed order makes the result bitwise deterministic.
Steps Exchange::reduce_slices() {
  const bool scatter = parts_.motion == Motion::reduce_scatter;
  const auto ranks = static_cast<std::size_t>(size_);
  const std::size_t most_bytes =
      std::clamp(4 * kLargestPart / std::max<std::size_t>(ranks - 1, 1), kSmallestPart, kLargestPart);
  const std::size_t part = most_bytes / backend::kCacheLine * backend::kCacheLine;  // whole elements, of any dtype
  const Flat whole = scatter ? Flat{} : flat(parts_.take[0], true, takes_reduction());
  std::vector<Flat> inputs;  // what this rank gives to each slice
  std::uint64_t most = 0;
  for (std::size_t t = 0; t < ranks; ++t) {
    if (scatter) {
      inputs.push_back(flat(parts_.give[t], true, false));
    } else {
      const std::size_t begin = backend::slice_begin(whole.bytes, ranks, t);
      inputs.push_back({whole.data + begin, backend::slice_begin(whole.bytes, ranks, t + 1) - begin});
    }
    most = std::max(most, parts_of(inputs[t].bytes, part));
  }
  const Flat own = inputs[static_cast<std::size_t>(rank_)];
  const auto piece = [&](Flat all, std::uint64_t k) {
    return Flat{all.data + k * part, std::min(part, all.bytes - k * part)};
  };
  const std::uint64_t count = parts_of(own.bytes, part);

  const std::size_t window_bytes = (ranks - 1) * std::min<std::size_t>(kWindow, count) * part;
  const bool apart = !scatter && !takes_reduction();  // ranks that receive no result must not overwrite their input
  scratch_ = Tensor::empty({static_cast<std::int64_t>(window_bytes + (apart ? own.bytes : 0))}, DType::u8);
  Flat result = own;
  if (scatter) result = flat(parts_.take[0], false, true);
  if (apart) result.data = scratch_.mutable_bytes() + window_bytes;
  const auto incoming = [&](std::uint64_t k, int r) {
    const auto place = static_cast<std::size_t>(r < rank_ ? r : r - 1) + (k % kWindow) * (ranks - 1);
    return Flat{scratch_.mutable_bytes() + place * part, piece(own, k).bytes};
  };
  const auto post_receives = [&](std::uint64_t k) {
    for (int i = 1; k < count && i < size_; ++i) {
      const int r = (rank_ + size_ - i) % size_;
      received_[at(k, r)] = receive(r, k, 0, incoming(k, r));
    }
  };
  received_.resize(at(count, 0));
  sent_.resize(at(most, 0));
  results_sent_.resize(at(count, 0));
  results_received_.resize(at(most, 0));
  for (std::uint64_t k = 0; k < kWindow; ++k) post_receives(k);

  std::vector<const std::byte*> sources(ranks);
  std::uint64_t given = 0;
  for (std::uint64_t k = 0; k < most; ++k) {
    for (; given < most && given <= k + kAhead; ++given) {
      for (int i = 1; i < size_; ++i) {
        const int r = (rank_ + i) % size_;
        const Flat input = inputs[static_cast<std::size_t>(r)];
        if (given * part < input.bytes) sent_[at(given, r)] = send(r, given, 0, piece(input, given));
      }
    }
    if (k < count) {
      for (int r = 0; r < size_; ++r) {
        while (!through(received_[at(k, r)], r)) co_await backend::kBlocked;
        received_[at(k, r)].reset();
        sources[static_cast<std::size_t>(r)] = r == rank_ ? piece(own, k).data : incoming(k, r).data;
      }
      const Flat out = piece(result, k);
      kernel::reduce(collective().op, parts_.dtype, sources, {&out.data, 1}, out.bytes / size_of(parts_.dtype));
      post_receives(k + kWindow);
      for (int i = 1; !scatter && i < size_; ++i) {
        const int r = (rank_ + i) % size_;
        if (parts_.motion == Motion::reduce && r != collective().root) continue;
        results_sent_[at(k, r)] = send(r, k, 1, out);
      }
    }
    // A peer's result replaces this rank's input for it, once that input has been sent.
    for (int i = 1; i < size_; ++i) {
      const int r = (rank_ + i) % size_;
      const Flat input = inputs[static_cast<std::size_t>(r)];
      if (k * part >= input.bytes) continue;
      while (!through(sent_[at(k, r)], r)) co_await backend::kBlocked;
      sent_[at(k, r)].reset();
      if (!scatter && takes_reduction()) results_received_[at(k, r)] = receive(r, k, 1, piece(input, k));
    }
  }
  for (auto* const messages : {&results_received_, &results_sent_}) {
    for (std::size_t i = 0; i < messages->size(); ++i) {
      while (!through((*messages)[i], static_cast<int>(i % ranks))) co_await backend::kBlocked;
    }
  }
}

}  // namespace hookline::engine
