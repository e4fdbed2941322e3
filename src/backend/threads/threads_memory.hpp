// Memory of ranks that are threads of one process.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/embedded/memory.hpp"

namespace hookline::threads {

/// The state that the ranks of one group share: blocks, registered buffers and subgroups. Thread-safe.
class World {
 public:
  /// With share_all_memory, collectives access all tensors of other ranks in place. Without it only memory from
  /// allocate(), as between processes, so that tests cover that path.
  World(int size, bool reach_all_memory);

  int size() const noexcept { return size_; }
  embedded::RankBlock& block(int rank) const { return *blocks_[static_cast<std::size_t>(rank)]; }

  void note(const std::byte* data, std::size_t bytes);
  void forget(const std::byte* data);
  bool reachable(const std::byte* data, std::size_t bytes) const;

  /// Returns the memory of a subgroup. The first member creates it. It lives until all members have joined, so that a
  /// late member detects members that have already left.
  std::shared_ptr<World> child(const std::string& name, int size);

  /// For tests: makes is_alive() of the rank return false.
  void kill(int rank) { dead_[static_cast<std::size_t>(rank)] = true; }
  bool is_dead(int rank) const { return dead_[static_cast<std::size_t>(rank)]; }

 private:
  const int size_;
  const bool reach_all_memory_;
  struct FreeBlock {
    void operator()(embedded::RankBlock* block) const noexcept;
  };
  std::vector<std::unique_ptr<embedded::RankBlock, FreeBlock>> blocks_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> shared_;
  struct Child {
    std::shared_ptr<World> world;
    int joined = 0;
  };
  std::map<std::string, Child> children_;
  std::vector<std::atomic<bool>> dead_;  ///< by rank
};

class ThreadsMemory final : public embedded::Memory {
 public:
  ThreadsMemory(std::shared_ptr<World> world, int rank) : Memory(rank, world->size()), world_(std::move(world)) {
    for (int r = 0; r < size(); ++r) set_block(r, world_->block(r));
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::optional<embedded::Location> locate(const std::byte* data, std::size_t bytes) const override;
  std::shared_ptr<std::byte> resolve(int rank, const embedded::Location& place, std::size_t bytes) override;
  void await_hands_off() override;
  std::vector<int> find_dead(const std::vector<int>& peers) override;

 private:
  const std::shared_ptr<World> world_;
};

/// Implements make_threads_backends(); see GroupMemory for `share_all_memory`.
std::vector<std::shared_ptr<Backend>> make_backends(int size, bool reach_all_memory);

}  // namespace hookline::threads
