// Memory: the interface to the blocks and buffers of the ranks, implemented by the threads and shm backends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/local/layout.hpp"

namespace hookline::local {

/// Where in a rank's shared memory something lies, and in which buffer: peers map whole buffers.
struct Location {
  std::uint64_t offset = 0;
  std::uint32_t first_page = 0;
  std::uint32_t pages = 0;
};

class Memory {
 public:
  virtual ~Memory() = default;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  RankBlock& block(int rank) const noexcept { return *blocks_[static_cast<std::size_t>(rank)]; }

  /// Memory that the peers can reach. Throws ResourceError with the size asked for.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// What to tell the peers so that they can reach `bytes` at `data`; nothing where they cannot.
  virtual std::optional<Location> locate(const std::byte* data, std::size_t bytes) const = 0;
  /// The peer's memory that locate() spoke of, mapped while the result lives. Throws ResourceError where it cannot be
  /// mapped, Aborted where the peer's word makes no sense.
  virtual std::shared_ptr<std::byte> resolve(int rank, const Location& location, std::size_t bytes) = 0;

  /// Called on the progress thread at its beginning and end: what tells the peers of this rank's death hangs on it.
  virtual void hold_liveness_lock() {}
  virtual void release_liveness_lock() {}

  /// Called when this rank has said that it is gone, before its operations end: returns when no thread of this process
  /// touches their tensors for a peer any more.
  virtual void wait_for_peer_access() {}

  /// Returns those of `peers` that died, as the kernel says. Costs at most one system call; never blocks.
  virtual std::vector<int> find_dead(const std::vector<int>& peers) = 0;

 protected:
  Memory(int rank, int size) : rank_(rank), size_(size) {}
  /// Where a rank's block lies; to be told of each before the memory is used.
  void set_block(int rank, RankBlock& block) noexcept { blocks_[static_cast<std::size_t>(rank)] = &block; }

 private:
  const int rank_;
  const int size_;
  std::array<RankBlock*, kMaxRanks> blocks_ =
      {};  ///< here and not behind a virtual: waiting looks at them all the time
};

}  // namespace hookline::local
