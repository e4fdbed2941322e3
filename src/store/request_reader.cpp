// Whole requests out of the pieces in which they come.
#include "store/request_reader.hpp"

#include <algorithm>

namespace hookline::store {

Scan RequestReader::read(std::string_view& bytes, std::string_view& whole) {
  joined_ = std::string();
  const auto [state, used] = scanner_.scan(bytes);
  const std::string_view piece = bytes.substr(0, used);
  bytes.remove_prefix(used);
  if (state == Scan::bad) return state;
  if (state == Scan::complete && held_ == 0) {  // the usual case: nothing is copied
    whole = piece;
    return state;
  }
  keep(piece);
  if (state == Scan::complete) {
    join();
    whole = joined_;
  }
  return state;
}

void RequestReader::keep(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t at = held_ % kBlock;
    if (at == 0) blocks_.push_back(std::make_unique_for_overwrite<std::array<char, kBlock>>());
    const std::size_t step = std::min(kBlock - at, bytes.size());
    std::copy_n(bytes.begin(), step, blocks_.back()->data() + at);
    held_ += step;
    bytes.remove_prefix(step);
  }
}

void RequestReader::join() {
  joined_.reserve(held_);
  for (auto& block : blocks_) {
    joined_.append(block->data(), std::min(kBlock, held_ - joined_.size()));
    block.reset();
  }
  blocks_ = decltype(blocks_)();
  held_ = 0;
}

}  // namespace hookline::store
