// The threads backend: blocks lie on the heap, and all ranks share one address space.
#include <hookline/backend/threads.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <mutex>
#include <new>
#include <thread>

#include <hookline/core/tensor.hpp>

#include "backend/local/local_backend.hpp"
#include "backend/threads/threads_memory.hpp"

namespace hookline {
namespace threads {

constexpr std::align_val_t kBlockAlignment{alignof(local::RankBlock)};

GroupMemory::GroupMemory(int size, bool share_all_memory)
    : size_(size), share_all_memory_(share_all_memory), dead_(static_cast<std::size_t>(size)) {
  blocks_.reserve(dead_.size());
  for (int r = 0; r < size; ++r) {
    void* const memory = ::operator new(local::block_bytes(size), kBlockAlignment);
    blocks_.emplace_back(local::make_block(memory, size));
  }
}

void GroupMemory::FreeBlock::operator()(local::RankBlock* block) const noexcept {
  ::operator delete(static_cast<void*>(block), kBlockAlignment);
}

void GroupMemory::register_buffer(const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  shared_[data] = bytes;
}

void GroupMemory::unregister_buffer(const std::byte* data) {
  const std::lock_guard lock(mutex_);
  shared_.erase(data);
}

bool GroupMemory::is_shared(const std::byte* data, std::size_t bytes) const {
  if (share_all_memory_) return true;
  const std::lock_guard lock(mutex_);
  auto after = shared_.upper_bound(data);
  if (after == shared_.begin()) return false;
  --after;
  return data + bytes <= after->first + after->second;
}

std::shared_ptr<void> ThreadsMemory::allocate(std::size_t bytes) {
  const Tensor memory = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8);
  group_memory_->register_buffer(memory.bytes(), bytes);
  return {memory.mutable_bytes(), [memory, group = group_memory_](void*) { group->unregister_buffer(memory.bytes()); }};
}

std::optional<local::Location> ThreadsMemory::locate(const std::byte* data, std::size_t bytes) const {
  if (!group_memory_->is_shared(data, bytes)) return std::nullopt;
  return local::Location{.offset = reinterpret_cast<std::uintptr_t>(data)};
}

std::shared_ptr<std::byte> ThreadsMemory::resolve(int, const local::Location& location, std::size_t) {
  return {std::shared_ptr<void>(), std::bit_cast<std::byte*>(location.offset)};  // not owning
}

// Spins: a peer accesses one chunk at a time and does not block meanwhile.
void ThreadsMemory::wait_for_peer_access() {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    for (const local::LaneBlock& lane : block(r).lanes) {
      while (lane.accessing_peer.load(std::memory_order_seq_cst)) std::this_thread::yield();
    }
  }
}

std::vector<int> ThreadsMemory::find_dead(const std::vector<int>& peers) {
  std::vector<int> dead;
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(dead), [&](int r) { return group_memory_->is_dead(r); });
  return dead;
}

std::shared_ptr<GroupMemory> GroupMemory::subgroup(const std::string& name, int size) {
  const std::lock_guard lock(mutex_);
  Subgroup& child = subgroups_[name];
  if (!child.memory) child.memory = std::make_shared<GroupMemory>(size, share_all_memory_);
  std::shared_ptr<GroupMemory> memory = child.memory;
  if (++child.joined == size) subgroups_.erase(name);
  return memory;
}

namespace {

std::shared_ptr<Backend> make_rank_backend(const std::shared_ptr<GroupMemory>& group_memory, int rank) {
  const auto make_subgroup = [group_memory, rank](const std::vector<int>& ranks, const std::string& name,
                                                  Milliseconds) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return make_rank_backend(group_memory->subgroup(name, static_cast<int>(ranks.size())), static_cast<int>(own));
  };
  return local::make_local_backend(std::make_unique<ThreadsMemory>(group_memory, rank), {.name = "threads"},
                                   make_subgroup);
}

}  // namespace

std::vector<std::shared_ptr<Backend>> make_backends(int size, bool share_all_memory) {
  local::check_size(size, "threads");
  const auto group_memory = std::make_shared<GroupMemory>(size, share_all_memory);
  std::vector<std::shared_ptr<Backend>> backends;
  backends.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) backends.push_back(make_rank_backend(group_memory, r));
  return backends;
}

}  // namespace threads

std::vector<std::shared_ptr<Backend>> make_threads_backends(int size) { return threads::make_backends(size, true); }

}  // namespace hookline
