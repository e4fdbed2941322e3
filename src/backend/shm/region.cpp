// Creates, seals and maps the memfd of a rank; maps the buffers of peers.
#include "backend/shm/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/shm/memory_limit.hpp"
#include "core/fork.hpp"

namespace hookline::shm {
namespace {

constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 44;  // address space, not memory
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxMappings = 64;

constexpr std::uint64_t round_up(std::uint64_t n) { return (n + kPage - 1) / kPage * kPage; }

std::string errno_text() { return std::strerror(errno); }

void* map(int fd, std::uint64_t offset, std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (memory == MAP_FAILED)
    throw ResourceError(fmt::format("cannot map {} bytes of shared memory: {}", bytes, errno_text()));
  return memory;
}

}  // namespace

OwnRegion::OwnRegion(int ranks)
    : fork_generation_(core::fork_generation()),
      block_bytes_(local::block_bytes(ranks)),
      fd_(memfd_create("hookline", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!fd_ || ftruncate(fd_.get(), static_cast<off_t>(kFileBytes)) != 0 ||
      fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw ResourceError(fmt::format("cannot create a shared memory file: {}", errno_text()));
  }
  reserve(0, block_bytes_);
  block_ = local::make_block(map(fd_.get(), 0, block_bytes_), ranks);
  next_offset_ = round_up(block_bytes_);
}

OwnRegion::~OwnRegion() { munmap(static_cast<void*>(block_), block_bytes_); }

void OwnRegion::reserve(std::uint64_t offset, std::size_t bytes) const {
  if (const std::uint64_t available = available_bytes(); bytes > available) {
    throw ResourceError(fmt::format(
        "cannot allocate {} bytes of shared memory: the host or control group has {} bytes left", bytes, available));
  }
  if (fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0)
    throw ResourceError(fmt::format("cannot allocate {} bytes of shared memory: {}", bytes, errno_text()));
}

std::shared_ptr<void> OwnRegion::allocate(std::size_t bytes) {
  const std::size_t length = round_up(std::max<std::size_t>(bytes, 1));
  std::uint64_t offset;
  {
    const std::lock_guard lock(mutex_);
    offset = next_offset_;
    if (length > kFileBytes - next_offset_) {
      throw ResourceError(fmt::format(
          "cannot allocate {} bytes of shared memory: all {} TiB of this group's memory file were allocated "
          "once, and freed addresses are not reused. Create a new group.",
          bytes, kFileBytes >> 40));
    }
    next_offset_ += length;
  }
  reserve(offset, length);
  std::byte* data = nullptr;
  try {
    data = static_cast<std::byte*>(map(fd_.get(), offset, length));
  } catch (...) {
    punch_hole(offset, length);
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    buffers_[data] = {offset, length};
  }
  return {data, [self = shared_from_this(), length](void* p) { self->release(static_cast<std::byte*>(p), length); }};
}

void OwnRegion::release(const std::byte* data, std::size_t bytes) {
  if (fork_generation_ != core::fork_generation()) {
    // The parent and its peers still use the memory, and a thread of the parent may hold the mutex.
    munmap(const_cast<std::byte*>(data), bytes);
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto buffer = buffers_.extract(data);
  munmap(const_cast<std::byte*>(data), bytes);
  punch_hole(buffer.mapped().offset, bytes);
}

// Returns the memory to the host.
void OwnRegion::punch_hole(std::uint64_t offset, std::size_t bytes) const {
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

std::optional<local::Location> OwnRegion::locate(const std::byte* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto after = buffers_.upper_bound(data);
  if (after == buffers_.begin()) return std::nullopt;
  const auto& [begin, buffer] = *--after;
  if (data + bytes > begin + buffer.bytes) return std::nullopt;
  return local::Location{
      .offset = buffer.offset + static_cast<std::uint64_t>(data - begin),
      .first_page = static_cast<std::uint32_t>(buffer.offset / kPage),
      .pages = static_cast<std::uint32_t>(buffer.bytes / kPage),
  };
}

PeerRegion::PeerRegion(FileDescriptor fd, int ranks) : fd_(std::move(fd)), block_bytes_(local::block_bytes(ranks)) {
  struct stat status = {};
  const int seals = fcntl(fd_.get(), F_GET_SEALS);
  if (fstat(fd_.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_size) != kFileBytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    throw Aborted("a peer sent a descriptor that is not a shared memory file of Hookline");
  }
  block_ = static_cast<local::RankBlock*>(map(fd_.get(), 0, block_bytes_));
}

PeerRegion::~PeerRegion() { munmap(static_cast<void*>(block_), block_bytes_); }

std::shared_ptr<std::byte> PeerRegion::resolve(const local::Location& location, std::size_t bytes) {
  const std::uint64_t begin = std::uint64_t{location.first_page} * kPage;
  const std::uint64_t length = std::uint64_t{location.pages} * kPage;
  if (begin < block_bytes_ || begin > kFileBytes || length > kFileBytes - begin || location.offset < begin ||
      location.offset - begin > length || bytes > length - (location.offset - begin)) {
    throw Aborted(
        fmt::format("a peer published an invalid location: {} bytes at offset {} are not in a buffer of its "
                    "shared memory",
                    bytes, location.offset));
  }
  const std::lock_guard lock(mutex_);
  auto mapping = std::find_if(mappings_.begin(), mappings_.end(),
                              [&](const Mapping& m) { return m.begin == begin && m.bytes == length; });
  if (mapping == mappings_.end()) {
    auto* const data = static_cast<std::byte*>(map(fd_.get(), begin, length));
    if (mappings_.size() == kMaxMappings) mappings_.erase(mappings_.begin());
    mappings_.push_back({begin, length, {data, [length](std::byte* p) { munmap(p, length); }}});
  } else {
    std::rotate(mapping, mapping + 1, mappings_.end());
  }
  const auto& memory = mappings_.back().memory;
  return {memory, memory.get() + (location.offset - begin)};
}

}  // namespace hookline::shm
