// A rank's shared memory: one sealed memfd that begins with the rank's block, followed by its buffers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/local/memory.hpp"
#include "core/file_descriptor.hpp"

namespace hookline::shm {

using core::FileDescriptor;

/// The file is as long as it will ever be from the start, and sealed so: nobody can make a mapping of it fault. It is
/// sparse, and what is used of it is allocated before it is handed out, so that a full host is an error, not SIGBUS.
/// Buffers never get an address in the file that was used before: a peer that wakes up late writes to a place that is
/// nobody's any more.
class OwnRegion : public std::enable_shared_from_this<OwnRegion> {
 public:
  explicit OwnRegion(int ranks);
  ~OwnRegion();

  int fd() const noexcept { return fd_.get(); }
  local::RankBlock& block() const noexcept { return *block_; }

  /// Not in a forked child: it would hand out what its parent hands out, too.
  std::shared_ptr<void> allocate(std::size_t bytes);
  std::optional<local::Location> locate(const std::byte* data, std::size_t bytes) const;

 private:
  void reserve(std::uint64_t offset, std::size_t bytes) const;
  void punch_hole(std::uint64_t offset, std::size_t bytes) const;
  void release(const std::byte* data, std::size_t bytes);

  const std::uint64_t fork_generation_;
  const std::size_t block_bytes_;
  FileDescriptor fd_;
  local::RankBlock* block_ = nullptr;
  std::uint64_t next_offset_ = 0;
  struct Buffer {
    std::uint64_t offset;
    std::size_t bytes;
  };
  mutable std::mutex mutex_;
  std::map<const std::byte*, Buffer> buffers_;
};

/// A peer's file: its block, and its buffers as they are spoken of.
class PeerRegion {
 public:
  PeerRegion(FileDescriptor fd, int ranks);
  ~PeerRegion();
  PeerRegion(const PeerRegion&) = delete;
  PeerRegion& operator=(const PeerRegion&) = delete;

  local::RankBlock& block() const noexcept { return *block_; }
  /// Maps the buffer at its first use and keeps some mappings. Throws Aborted where the place makes no sense.
  std::shared_ptr<std::byte> resolve(const local::Location& location, std::size_t bytes);

 private:
  struct Mapping {
    std::uint64_t begin;
    std::uint64_t bytes;
    std::shared_ptr<std::byte> memory;
  };
  FileDescriptor fd_;
  const std::size_t block_bytes_;
  local::RankBlock* block_ = nullptr;
  std::mutex mutex_;
  std::vector<Mapping> mappings_;  ///< the one used last is the last
};

}  // namespace hookline::shm
