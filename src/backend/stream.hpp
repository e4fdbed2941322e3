// The elements of one or several tensors as one run of bytes, wherever its pieces lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernel/copy.hpp"

namespace hookline::backend {

struct Piece {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// Pieces one behind the other. One piece, the usual case, takes no allocation.
class Stream {
 public:
  void append(std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    if (bytes_ == 0) {
      first_ = {data, bytes};
    } else {
      rest_.push_back({data, bytes});
    }
    bytes_ += bytes;
  }

  std::size_t bytes() const noexcept { return bytes_; }
  /// The memory of a stream that lies in one piece; null for one that does not.
  std::byte* contiguous() const noexcept { return rest_.empty() ? first_.data : nullptr; }

  /// Calls `f(data, bytes, position)` for each part of a piece that falls into [begin, begin + bytes); `position`
  /// counts from `begin`. What lies beyond the end is left out.
  template <class F>
  void for_each(std::size_t begin, std::size_t bytes, F&& f) const {
    const std::size_t end = std::min(begin + bytes, bytes_);
    std::size_t at = 0;
    const auto visit = [&](const Piece& piece) {
      const std::size_t from = std::max(begin, at);
      const std::size_t to = std::min(end, at + piece.bytes);
      if (from < to) f(piece.data + (from - at), to - from, from - begin);
      at += piece.bytes;
    };
    visit(first_);
    for (const Piece& piece : rest_) visit(piece);
  }

  /// Copies [begin, begin + bytes) to memory in one piece, or from it.
  void read(std::size_t begin, std::size_t bytes, std::byte* to) const {
    for_each(begin, bytes,
             [to](const std::byte* data, std::size_t n, std::size_t at) { kernel::copy(to + at, data, n); });
  }
  void write(std::size_t begin, std::size_t bytes, const std::byte* from) const {
    for_each(begin, bytes, [from](std::byte* out, std::size_t n, std::size_t at) { kernel::copy(out, from + at, n); });
  }

 private:
  Piece first_;
  std::vector<Piece> rest_;
  std::size_t bytes_ = 0;
};

/// What goes to, or comes from, the ranks: one stream for all, or one for each. A single one takes no allocation.
class Blocks {
 public:
  /// Makes it so many empty ones.
  void start(std::size_t count) {
    count_ = count;
    rest_.resize(count > 1 ? count - 1 : 0);
  }

  std::size_t size() const noexcept { return count_; }
  Stream& operator[](std::size_t i) noexcept { return i == 0 ? first_ : rest_[i - 1]; }
  const Stream& operator[](std::size_t i) const noexcept { return i == 0 ? first_ : rest_[i - 1]; }

  /// The one for a rank: its own, or the one for all.
  const Stream& of(int rank) const noexcept { return (*this)[count_ == 1 ? 0 : static_cast<std::size_t>(rank)]; }

  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count_; ++i) sum += (*this)[i].bytes();
    return sum;
  }

  /// Copies all of them to memory in one piece, one behind the other.
  void read(std::byte* to) const {
    for (std::size_t i = 0; i < count_; ++i) {
      (*this)[i].read(0, (*this)[i].bytes(), to);
      to += (*this)[i].bytes();
    }
  }

 private:
  std::size_t count_ = 0;
  Stream first_;
  std::vector<Stream> rest_;
};

}  // namespace hookline::backend
