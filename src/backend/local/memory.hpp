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

/// A position in a rank's shared memory, and the pages of the buffer that contains it: peers map whole buffers.
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

  /// Allocates memory that the peers can access. Throws ResourceError.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Returns the location that peers pass to resolve(), or nullopt if they cannot access this memory.
  virtual std::optional<Location> locate(const std::byte* data, std::size_t bytes) const = 0;
  /// Returns a peer's memory at a location, mapped while the result lives. Throws ResourceError if it cannot be mapped,
  /// Aborted if the location is invalid.
  virtual std::shared_ptr<std::byte> resolve(int rank, const Location& location, std::size_t bytes) = 0;

  /// Called on the progress thread when it starts and ends. The kernel reports the death of the thread that holds the
  /// lock.
  virtual void hold_liveness_lock() {}
  virtual void release_liveness_lock() {}

  /// Called after this rank has published that it failed or left, before its operations complete. Blocks until no
  /// thread of this process accesses their tensors for a peer.
  virtual void wait_for_peer_access() {}

  /// Returns the ranks of `peers` that died, as the kernel reports. Makes at most one system call; never blocks.
  virtual std::vector<int> find_dead(const std::vector<int>& peers) = 0;

 protected:
  Memory(int rank, int size) : rank_(rank), size_(size) {}
  /// Sets the block of a rank. Call for every rank before the memory is used.
  void set_block(int rank, RankBlock& block) noexcept { blocks_[static_cast<std::size_t>(rank)] = &block; }

 private:
  const int rank_;
  const int size_;
  std::array<RankBlock*, kMaxRanks> blocks_ = {};  ///< not behind a virtual call, because waits poll it
};

}  // namespace hookline::local
