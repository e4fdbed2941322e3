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

/// The memory file of this rank. Its size is fixed and sealed, so that no process can truncate it under a mapping
/// (SIGBUS). It is sparse; parts are allocated before use, so that a full host causes an error, not SIGBUS. File
/// offsets are never reused: a late write by a delayed peer hits no live buffer.
class OwnRegion : public std::enable_shared_from_this<OwnRegion> {
 public:
  explicit OwnRegion(int ranks);
  ~OwnRegion();

  int fd() const noexcept { return fd_.get(); }
  local::RankBlock& block() const noexcept { return *block_; }

  /// Must not be called in a forked child, which would allocate the same offsets as its parent.
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

/// A peer's memory file, mapped into this process: its block at construction, its buffers on first use.
class PeerRegion {
 public:
  PeerRegion(FileDescriptor fd, int ranks);
  ~PeerRegion();
  PeerRegion(const PeerRegion&) = delete;
  PeerRegion& operator=(const PeerRegion&) = delete;

  local::RankBlock& block() const noexcept { return *block_; }
  /// Returns a buffer of the peer. Maps it on first use and caches recent mappings. Throws Aborted if the location is
  /// invalid.
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
  std::vector<Mapping> mappings_;  ///< least recently used first
};

}  // namespace hookline::shm
