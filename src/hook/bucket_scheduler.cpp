// BucketScheduler: one queue for each process group.
#include "hook/bucket_scheduler.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "group/group_identity.hpp"

namespace hookline::hook {

namespace {

/// The schedulers of live groups, by identity. Never destroyed, since reducers may outlive static destructors.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, std::weak_ptr<BucketScheduler>> schedulers;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

int lane_count(const ProcessGroup& group) { return std::clamp(group.capabilities().lanes, 1, Capabilities::kMaxLanes); }

int lane_of(int lanes, const CommHookInterface& hook, std::size_t bucket) {
  if (lanes == 1) return 0;
  return 1 + (hook.may_block() ? 0 : static_cast<int>(bucket % static_cast<std::size_t>(lanes - 1)));
}

std::shared_ptr<BucketScheduler> BucketScheduler::of(const ProcessGroup& group) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.schedulers, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<BucketScheduler>& known = all.schedulers[group::identity_of(group)];
  std::shared_ptr<BucketScheduler> scheduler = known.lock();
  if (!scheduler) known = scheduler = std::make_shared<BucketScheduler>();
  return scheduler;
}

void BucketScheduler::enqueue(Entry entry) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(entry));
}

void BucketScheduler::launch() {
  std::unique_lock lock(mutex_);
  if (launching_) return;
  launching_ = true;
  while (std::optional<Entry> entry = next()) {
    lock.unlock();
    entry->start();
    entry.reset();  // may destroy an owner
    lock.lock();
  }
  launching_ = false;
}

void BucketScheduler::release(const void* owner, int lane) {
  const std::lock_guard lock(mutex_);
  const void*& occupant = occupants_[static_cast<std::size_t>(lane)];
  if (occupant == owner) occupant = nullptr;
  progress_.fetch_add(1, std::memory_order_relaxed);
}

void BucketScheduler::abandon(const void* owner) {
  const std::lock_guard lock(mutex_);
  std::replace(occupants_.begin(), occupants_.end(), owner, static_cast<const void*>(nullptr));
}

// Takes the first entry if its lane is free. Later entries wait even if their lanes are free, so that hooks start in
// the same order on all ranks. A hook may count steps by its starts, and several hooks may share a thread that waits
// for collectives.
std::optional<BucketScheduler::Entry> BucketScheduler::next() {
  if (queue_.empty()) return std::nullopt;
  const Entry& first = queue_.front();
  const void*& occupant = occupants_[static_cast<std::size_t>(first.lane)];
  if (occupant) return std::nullopt;
  if (first.exclusive) occupant = first.owner;
  progress_.fetch_add(1, std::memory_order_relaxed);
  std::optional<Entry> taken = std::move(queue_.front());
  queue_.pop_front();
  return taken;
}

void throw_bad_result(const std::string& label, const Tensor& buffer, const Tensor& result) {
  throw InvalidArgument(
      fmt::format("{}: invalid hook result: expected {}, got {}", label, to_string(buffer), to_string(result)));
}

bool is_group_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Mismatch&) {
    return true;
  } catch (const Aborted&) {
    return true;
  } catch (const PeerLost&) {
    return true;
  } catch (const Timeout&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace hookline::hook
