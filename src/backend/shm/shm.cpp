// The shm backend: each rank maps the regions of its peers and proves that it is alive by holding a robust mutex.
#include <hookline/backend/shm.hpp>

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/local/local_backend.hpp"
#include "backend/shm/descriptor_limit.hpp"
#include "backend/shm/fd_exchange.hpp"
#include "backend/shm/region.hpp"
#include "backend/store_allgather.hpp"

namespace hookline {
namespace shm {
namespace {

using local::Location;
using local::RankBlock;

class ShmMemory final : public local::Memory {
 public:
  ShmMemory(Store& store, int rank, int size, Clock::time_point deadline)
      : Memory(rank, size), own_(std::make_shared<OwnRegion>(size)) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&own_->block().liveness_lock, &attributes);
    pthread_mutexattr_destroy(&attributes);

    for (Peer& peer : exchange_fds(store, rank, size, own_->fd(), deadline)) {
      processes_.push_back(std::move(peer.process));
      const int r = static_cast<int>(peers_.size());
      peers_.push_back(r != rank ? std::make_unique<PeerRegion>(std::move(peer.memory), size) : nullptr);
      set_block(r, r != rank ? peers_.back()->block() : own_->block());
    }
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override { return own_->allocate(bytes); }
  std::optional<Location> locate(const std::byte* data, std::size_t bytes) const override {
    return own_->locate(data, bytes);
  }
  std::shared_ptr<std::byte> resolve(int rank, const Location& location, std::size_t bytes) override {
    return peers_[static_cast<std::size_t>(rank)]->resolve(location, bytes);
  }

  void hold_liveness_lock() override { pthread_mutex_lock(&own_->block().liveness_lock); }
  void release_liveness_lock() override { pthread_mutex_unlock(&own_->block().liveness_lock); }

  // The robust mutex reports a death at once, whatever the size of the process. The pidfd reports it when the memory is
  // freed, but does so even if the mutex was never locked. A rank that finds a dead owner holds the mutex briefly and
  // sets found_dead before it unlocks. Other ranks that find the mutex locked meanwhile see found_dead afterwards.
  std::vector<int> find_dead(const std::vector<int>& peers) override {
    std::vector<int> dead;
    std::vector<int> watched;
    std::vector<pollfd> entries;
    for (const int r : peers) {
      if (const std::optional<bool> alive = is_alive(block(r)); !alive) {
        watched.push_back(r);
        entries.push_back({processes_[static_cast<std::size_t>(r)].get(), POLLIN, 0});
      } else if (!*alive) {
        dead.push_back(r);
      }
    }
    if (poll(entries.data(), entries.size(), 0) <= 0) return dead;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents != 0) dead.push_back(watched[i]);
    }
    std::sort(dead.begin(), dead.end());
    return dead;
  }

 private:
  // Returns false if the mutex or found_dead shows a death, and nullopt if the mutex is locked. A locked mutex does not
  // prove that the owner lives: if the kernel could not mark the mutex, it stays locked after the owner's death.
  static std::optional<bool> is_alive(RankBlock& peer) {
    if (peer.found_dead.load(std::memory_order_seq_cst)) return false;
    const int result = pthread_mutex_trylock(&peer.liveness_lock);
    if (result == EBUSY) return std::nullopt;
    if (result != 0) peer.found_dead.store(true, std::memory_order_seq_cst);
    if (result == 0 || result == EOWNERDEAD) pthread_mutex_unlock(&peer.liveness_lock);
    // Locked without EOWNERDEAD: the owner unlocked it when it left the group.
    return result == 0;
  }

  const std::shared_ptr<OwnRegion> own_;
  std::vector<std::unique_ptr<PeerRegion>> peers_;
  std::vector<FileDescriptor> processes_;
};

}  // namespace
}  // namespace shm

std::shared_ptr<Backend> make_shm_backend(std::shared_ptr<Store> store, int rank, int size, Milliseconds timeout,
                                          WaitPolicy wait_policy) {
  local::check_size(size, "shm");
  if (rank < 0 || rank >= size) {
    throw InvalidArgument(fmt::format("shm group: rank {} is out of range for {} ranks", rank, size));
  }
  if (!store) throw InvalidArgument("shm group: a store is required to create the group");
  const Clock::time_point deadline = deadline_after(timeout);
  const auto make_subgroup = [store, rank, wait_policy](const std::vector<int>& ranks, const std::string& name,
                                                        Milliseconds time) {
    const auto own = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return make_shm_backend(std::make_shared<PrefixStore>(name, store), static_cast<int>(own),
                            static_cast<int>(ranks.size()), time, wait_policy);
  };
  shm::reserve_descriptors(static_cast<std::size_t>(size), fmt::format("rank {} of {} of a shm group", rank, size));
  auto memory = std::make_unique<shm::ShmMemory>(*store, rank, size, deadline);
  auto backend = local::make_local_backend(
      std::move(memory), {.name = "shm", .block_at_once = wait_policy == WaitPolicy::block}, make_subgroup);
  // No rank may check for deaths before all ranks hold their liveness locks.
  backend::store_allgather(*store, "shm/ready", rank, size, "", deadline);
  return backend;
}

}  // namespace hookline
