// A scatter-gather list: the bytes of several tensors as one sequence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernel/copy.hpp"

namespace hookline::backend {

struct Segment {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// A sequence of memory segments. A single segment, the usual case, does not allocate.
class SegmentList {
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
  /// Returns the memory if there is only one segment, else null.
  std::byte* contiguous() const noexcept { return rest_.empty() ? first_.data : nullptr; }

  /// Calls `f(data, bytes, position)` for each intersection of a segment with [begin, begin + bytes), clipped to the
  /// end; `position` counts from `begin`.
  template <class F>
  void for_each(std::size_t begin, std::size_t bytes, F&& f) const {
    const std::size_t end = std::min(begin + bytes, bytes_);
    std::size_t at = 0;
    const auto visit = [&](const Segment& segment) {
      const std::size_t from = std::max(begin, at);
      const std::size_t to = std::min(end, at + segment.bytes);
      if (from < to) f(segment.data + (from - at), to - from, from - begin);
      at += segment.bytes;
    };
    visit(first_);
    for (const Segment& segment : rest_) visit(segment);
  }

  /// Copies [begin, begin + bytes) to or from contiguous memory.
  void read(std::size_t begin, std::size_t bytes, std::byte* to) const {
    for_each(begin, bytes,
             [to](const std::byte* data, std::size_t n, std::size_t at) { kernel::copy(to + at, data, n); });
  }
  void write(std::size_t begin, std::size_t bytes, const std::byte* from) const {
    for_each(begin, bytes, [from](std::byte* out, std::size_t n, std::size_t at) { kernel::copy(out, from + at, n); });
  }

 private:
  Segment first_;
  std::vector<Segment> rest_;
  std::size_t bytes_ = 0;
};

/// The blocks sent to or received from the ranks: one for all ranks, or one for each. A single block does not allocate.
class Blocks {
 public:
  /// Sets the number of blocks. Call once, before adding segments.
  void resize(std::size_t count) {
    count_ = count;
    rest_.resize(count > 1 ? count - 1 : 0);
  }

  std::size_t size() const noexcept { return count_; }
  SegmentList& operator[](std::size_t i) noexcept { return i == 0 ? first_ : rest_[i - 1]; }
  const SegmentList& operator[](std::size_t i) const noexcept { return i == 0 ? first_ : rest_[i - 1]; }

  /// Returns the block of a rank, or the single block for all ranks.
  const SegmentList& for_rank(int rank) const noexcept {
    return (*this)[count_ == 1 ? 0 : static_cast<std::size_t>(rank)];
  }

  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count_; ++i) sum += (*this)[i].bytes();
    return sum;
  }

  /// Copies all blocks to contiguous memory, concatenated.
  void read(std::byte* to) const {
    for (std::size_t i = 0; i < count_; ++i) {
      (*this)[i].read(0, (*this)[i].bytes(), to);
      to += (*this)[i].bytes();
    }
  }

 private:
  std::size_t count_ = 0;
  SegmentList first_;
  std::vector<SegmentList> rest_;
};

}  // namespace hookline::backend
