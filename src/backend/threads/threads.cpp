// The threads backend: blocks lie on the heap, and all ranks share one address space.
#include <hookline/backend/threads.hpp>

#include <algorithm>
#include <bit>
#include <iterator>
#include <mutex>
#include <new>
#include <thread>

#include <hookline/core/tensor.hpp>

#include "backend/embedded/embedded_backend.hpp"
#include "backend/threads/threads_memory.hpp"

namespace hookline {
namespace threads {

constexpr std::align_val_t kBlockAlignment{alignof(embedded::RankBlock)};

World::World(int size, bool reach_all_memory)
    : size_(size), reach_all_memory_(reach_all_memory), dead_(static_cast<std::size_t>(size)) {
  blocks_.reserve(dead_.size());
  for (int r = 0; r < size; ++r) {
    void* const memory = ::operator new(embedded::block_bytes(size), kBlockAlignment);
    blocks_.emplace_back(embedded::make_block(memory, size));
  }
}

void World::FreeBlock::operator()(embedded::RankBlock* block) const noexcept {
  ::operator delete(static_cast<void*>(block), kBlockAlignment);
}

void World::note(const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  shared_[data] = bytes;
}

void World::forget(const std::byte* data) {
  const std::lock_guard lock(mutex_);
  shared_.erase(data);
}

bool World::reachable(const std::byte* data, std::size_t bytes) const {
  if (reach_all_memory_) return true;
  const std::lock_guard lock(mutex_);
  auto after = shared_.upper_bound(data);
  if (after == shared_.begin()) return false;
  --after;
  return data + bytes <= after->first + after->second;
}

std::shared_ptr<void> ThreadsMemory::allocate(std::size_t bytes) {
  const Tensor memory = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8);
  world_->note(memory.bytes(), bytes);
  return {memory.mutable_bytes(), [memory, world = world_](void*) { world->forget(memory.bytes()); }};
}

std::optional<embedded::Location> ThreadsMemory::locate(const std::byte* data, std::size_t bytes) const {
  if (!world_->reachable(data, bytes)) return std::nullopt;
  return embedded::Location{.offset = reinterpret_cast<std::uintptr_t>(data)};
}

std::shared_ptr<std::byte> ThreadsMemory::resolve(int, const embedded::Location& place, std::size_t) {
  return {std::shared_ptr<void>(), std::bit_cast<std::byte*>(place.offset)};  // not owning
}

// Spins: a peer accesses one chunk at a time and does not block meanwhile.
void ThreadsMemory::await_hands_off() {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    for (const embedded::LaneBlock& lane : block(r).lanes) {
      while (lane.reaching.load(std::memory_order_seq_cst)) std::this_thread::yield();
    }
  }
}

std::vector<int> ThreadsMemory::find_dead(const std::vector<int>& peers) {
  std::vector<int> dead;
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(dead), [&](int r) { return world_->is_dead(r); });
  return dead;
}

std::shared_ptr<World> World::child(const std::string& name, int size) {
  const std::lock_guard lock(mutex_);
  Child& child = children_[name];
  if (!child.world) child.world = std::make_shared<World>(size, reach_all_memory_);
  std::shared_ptr<World> world = child.world;
  if (++child.joined == size) children_.erase(name);
  return world;
}

namespace {

std::shared_ptr<Backend> make_backend(const std::shared_ptr<World>& world, int rank) {
  const auto subset = [world, rank](const std::vector<int>& ranks, const std::string& name, Milliseconds) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return make_backend(world->child(name, static_cast<int>(ranks.size())), static_cast<int>(own));
  };
  return embedded::make_backend(std::make_unique<ThreadsMemory>(world, rank), {.name = "threads"}, subset);
}

}  // namespace

std::vector<std::shared_ptr<Backend>> make_backends(int size, bool reach_all_memory) {
  embedded::check_size(size, "threads");
  const auto world = std::make_shared<World>(size, reach_all_memory);
  std::vector<std::shared_ptr<Backend>> backends;
  backends.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) backends.push_back(make_backend(world, r));
  return backends;
}

}  // namespace threads

std::vector<std::shared_ptr<Backend>> make_threads_backends(int size) { return threads::make_backends(size, true); }

}  // namespace hookline
