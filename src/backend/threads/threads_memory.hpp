// Memory of ranks that are threads of one process.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/local/memory.hpp"

namespace hookline::threads {

/// The state that the ranks of one group share: blocks, registered buffers and subgroups. Thread-safe.
class GroupMemory {
 public:
  /// With share_all_memory, collectives access all tensors of other ranks in place. Without it they access only memory
  /// from allocate() in place, as between processes; tests use this to cover the staged path.
  GroupMemory(int size, bool share_all_memory);

  int size() const noexcept { return size_; }
  local::RankBlock& block(int rank) const { return *blocks_[static_cast<std::size_t>(rank)]; }

  void register_buffer(const std::byte* data, std::size_t bytes);
  void unregister_buffer(const std::byte* data);
  bool is_shared(const std::byte* data, std::size_t bytes) const;

  /// Returns the memory of a subgroup. The first member creates it. It lives until all members have joined, so that a
  /// late member detects members that have already left.
  std::shared_ptr<GroupMemory> subgroup(const std::string& name, int size);

  /// For tests: makes find_dead() report the rank.
  void mark_dead(int rank) { dead_[static_cast<std::size_t>(rank)] = true; }
  bool is_dead(int rank) const { return dead_[static_cast<std::size_t>(rank)]; }

 private:
  const int size_;
  const bool share_all_memory_;
  struct FreeBlock {
    void operator()(local::RankBlock* block) const noexcept;
  };
  std::vector<std::unique_ptr<local::RankBlock, FreeBlock>> blocks_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> shared_;
  struct Subgroup {
    std::shared_ptr<GroupMemory> memory;
    int joined = 0;
  };
  std::map<std::string, Subgroup> subgroups_;
  std::vector<std::atomic<bool>> dead_;  ///< by rank
};

class ThreadsMemory final : public local::Memory {
 public:
  ThreadsMemory(std::shared_ptr<GroupMemory> group_memory, int rank)
      : Memory(rank, group_memory->size()), group_memory_(std::move(group_memory)) {
    for (int r = 0; r < size(); ++r) set_block(r, group_memory_->block(r));
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::optional<local::Location> locate(const std::byte* data, std::size_t bytes) const override;
  std::shared_ptr<std::byte> resolve(int rank, const local::Location& location, std::size_t bytes) override;
  void wait_for_peer_access() override;
  std::vector<int> find_dead(const std::vector<int>& peers) override;

 private:
  const std::shared_ptr<GroupMemory> group_memory_;
};

/// Implements make_threads_backends(); see GroupMemory for `share_all_memory`.
std::vector<std::shared_ptr<Backend>> make_backends(int size, bool share_all_memory);

}  // namespace hookline::threads
