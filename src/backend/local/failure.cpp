// Failure handling of LocalContext: detects failures, publishes them to the peers and fails pending operations.
#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/local/futex_event.hpp"
#include "backend/local/local_context.hpp"
#include "backend/monitored_barrier.hpp"
#include "core/fork.hpp"

namespace hookline::local {
namespace {

/// Returns the rank that failed first. An Aborted error names it, because each rank forwards the origin.
int failure_origin(const std::exception_ptr& cause, int rank) {
  try {
    std::rethrow_exception(cause);
  } catch (const Aborted& e) {
    return e.ranks().empty() ? rank : e.ranks().front();
  } catch (...) {
    return rank;
  }
}

}  // namespace

std::exception_ptr LocalContext::error() const {
  const std::lock_guard lock(state_mutex_);
  return error_;
}

std::exception_ptr LocalContext::unusable_error() const {
  if (!is_unusable_.load(std::memory_order_seq_cst)) return nullptr;
  const std::lock_guard lock(state_mutex_);
  if (error_) return error_;
  return std::make_exception_ptr(
      Aborted(fmt::format("the {} group was shut down on rank {}", name(), memory_->rank()), {memory_->rank()}));
}

void LocalContext::fail(std::exception_ptr cause) {
  if (fork_generation_ != core::fork_generation()) return;  // the peers would attribute the failure to the parent
  {
    const std::lock_guard lock(state_mutex_);
    if (error_ || closed_) return;
    error_ = cause;
    is_unusable_.store(true, std::memory_order_seq_cst);
    RankBlock& mine = memory_->block(memory_->rank());
    const std::string text = hookline::describe(cause).substr(0, kFailureReasonBytes - 1);
    std::memcpy(mine.failure_reason.data(), text.c_str(), text.size() + 1);
    mine.failure_origin = failure_origin(cause, memory_->rank());
    mine.state.store(RankState::failed, std::memory_order_seq_cst);
  }
  notify_peers(*memory_);
  fail_pending(cause);
}

// Acquires each driver lock in turn, because a driver may be accessing the tensors of its operation.
void LocalContext::fail_pending(const std::exception_ptr& cause) {
  memory_->wait_for_peer_access();
  const auto acquire = [](DriverLock& driver_lock) {
    if (driver_lock.held_by_this_thread()) return false;
    while (!driver_lock.try_lock()) std::this_thread::yield();
    return true;
  };
  for (Lane& lane : lanes_) {
    if (!acquire(lane.driver_lock)) continue;
    std::deque<std::shared_ptr<LocalOp>> failed_ops;
    {
      const std::lock_guard lock(lane.mutex);
      failed_ops.assign(lane.queue.begin(), lane.queue.end());
      lane.queue.clear();
    }
    if (lane.current) failed_ops.push_front(std::exchange(lane.current, nullptr));
    lane.completed.store(lane.completed.load(std::memory_order_relaxed) + failed_ops.size(), std::memory_order_seq_cst);
    lane.driver_lock.unlock();
    for (const auto& op : failed_ops) op->complete(cause);
  }
  if (!acquire(mailboxes_lock_)) return;
  mailboxes_.fail_pending(cause);
  mailboxes_lock_.unlock();
}

void LocalContext::release(DriverLock& lock, const std::exception_ptr& fatal) {
  lock.unlock();
  if (fatal) fail(fatal);
  // Needed even if fail() did nothing: a completion callback may have failed the group under this lock. The operations
  // that this lock guards were then skipped.
  if (const std::exception_ptr cause = unusable_error()) fail_pending(cause);
}

// Steps all operations, then calls `f` for those that are not done, under the driver lock. `f` receives the earliest
// deadline in the lane, since the queued operations wait for the current one. Operations are stepped first because a
// dead rank may have posted all the data that they need. Skips lanes that another thread drives; the next check covers
// them.
template <class F>
void LocalContext::for_each_stalled(F f) {
  std::exception_ptr fatal;
  for (Lane& lane : lanes_) {
    if (lane.idle() || !lane.driver_lock.try_lock()) continue;
    while (step_lane(lane, fatal)) {
    }
    if (lane.current) {
      Clock::time_point earliest = lane.current->deadline();
      {
        const std::lock_guard lock(lane.mutex);
        for (const auto& op : lane.queue) earliest = std::min(earliest, op->deadline());
      }
      f(*lane.current, earliest);
    }
    release(lane.driver_lock, fatal);
    if (fatal) return;
    drive_lane(lane);  // an operation may have been submitted meanwhile, as after every unlock
  }
  if (mailboxes_.empty() || !mailboxes_lock_.try_lock()) return;
  const auto ops = mailboxes_.pending();  // before step(): operations posted later may not have been stepped
  try {
    while (mailboxes_.step()) {
    }
    for (const auto& op : ops) {
      if (!op->done()) f(*op, op->deadline());
    }
  } catch (...) {
    fatal = std::current_exception();
  }
  release(mailboxes_lock_, fatal);
}

std::vector<int> LocalContext::dead_ranks() {
  const auto inactive = [&](int r) {
    return memory_->block(r).state.load(std::memory_order_seq_cst) != RankState::active;
  };
  std::vector<int> peers;
  for (int r = 0; r < memory_->size(); ++r) {
    if (r != memory_->rank() && !inactive(r)) peers.push_back(r);
  }
  std::vector<int> dead = memory_->find_dead(peers);
  std::erase_if(dead, inactive);
  return dead;
}

void LocalContext::check_peers() {
  if (is_unusable_.load(std::memory_order_acquire) || !has_pending()) return;
  const int me = memory_->rank();
  std::exception_ptr failed_peer_error;
  for (int r = 0; r < memory_->size() && !failed_peer_error; ++r) {
    const RankBlock& peer = memory_->block(r);
    if (r == me || peer.state.load(std::memory_order_seq_cst) != RankState::failed) continue;
    const std::string cause(peer.failure_reason.data(), strnlen(peer.failure_reason.data(), kFailureReasonBytes));
    const bool known = peer.failure_origin >= 0 && peer.failure_origin < memory_->size();
    failed_peer_error = std::make_exception_ptr(
        Aborted(fmt::format("rank {} failed: {}", r, cause), {known ? peer.failure_origin : r}));
  }
  // The states are loaded after the failures. If a peer failed because a rank left or died, it observed that before it
  // published its failure (seq_cst), so this rank observes it, too.
  std::vector<int> left;
  std::vector<int> others;
  for (int r = 0; r < memory_->size(); ++r) {
    if (r == me) continue;
    const RankState state = memory_->block(r).state.load(std::memory_order_seq_cst);
    (state == RankState::left ? left : others).push_back(r);
  }
  // A failed rank has published its reason; that its process has exited since is not the cause.
  std::vector<int> dead = memory_->find_dead(others);
  std::erase_if(dead,
                [&](int r) { return memory_->block(r).state.load(std::memory_order_seq_cst) == RankState::failed; });

  std::exception_ptr cause;
  const Clock::time_point now = Clock::now();
  for_each_stalled([&](LocalOp& operation, Clock::time_point deadline) {
    if (cause) return;
    const std::vector<int> awaited = operation.awaited_ranks();
    const auto context = [&] { return fmt::format("{} on rank {} of the {} group", operation.describe(), me, name()); };
    std::vector<int> departed;
    std::set_intersection(awaited.begin(), awaited.end(), left.begin(), left.end(), std::back_inserter(departed));
    if (operation.awaits_any() && departed.size() < awaited.size()) departed.clear();
    if (!dead.empty()) {
      cause = std::make_exception_ptr(PeerLost(
          fmt::format("{}: rank {} died. Create a new group without it.", context(), fmt::join(dead, ", ")), dead));
    } else if (!departed.empty()) {  // before failed_peer_error, so that all ranks report one cause
      cause = std::make_exception_ptr(
          PeerLost(fmt::format("{}: rank {} left the group", context(), fmt::join(departed, ", ")), departed));
    } else if (failed_peer_error) {
      cause = failed_peer_error;
    } else if (now >= deadline && !awaited.empty()) {  // awaited ranks may have arrived since the last step
      const auto waited = std::chrono::duration_cast<Milliseconds>(now - operation.time_started());
      std::string text =
          fmt::format("{}: rank {} did not join within {} ms", context(), fmt::join(awaited, ", "), waited.count());
      if (operation.operation().type == OpType::monitored_barrier) {
        text = backend::monitored_barrier_error(me, awaited, operation.operation().wait_all_ranks, waited);
      }
      cause = std::make_exception_ptr(Timeout(text, awaited));
    }
  });
  if (cause) fail(cause);
}

}  // namespace hookline::local
