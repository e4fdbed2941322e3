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

/// Returns the rank that failed first: a rank that gives up because another one did passes that one's number on.
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
  if (fork_generation_ != core::fork_generation()) return;  // the peers would take it for the parent's word
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

// Takes each claim in turn: while a driver is inside an operation, its tensors are being touched.
void LocalContext::fail_pending(const std::exception_ptr& cause) {
  memory_->wait_for_peer_access();
  const auto locked = [](DriverLock& claim) {
    if (claim.held_by_this_thread()) return false;
    while (!claim.try_lock()) std::this_thread::yield();
    return true;
  };
  for (Lane& lane : lanes_) {
    if (!locked(lane.driver_lock)) continue;
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
  if (!locked(mailboxes_lock_)) return;
  mailboxes_.fail_pending(cause);
  mailboxes_lock_.unlock();
}

void LocalContext::release(DriverLock& lock, const std::exception_ptr& fatal) {
  lock.unlock();
  if (fatal) fail(fatal);
  // Also where fail() had nothing to do: who failed it under this claim has left what is queued behind it.
  if (const std::exception_ptr cause = unusable_error()) fail_pending(cause);
}

// Calls f for operations that were stepped and are not over, before anybody else can step them, with the time by which
// they must be: those behind the head of a lane wait for it, and may have less time. So what a rank posted
// before it was seen to be gone is taken first: it may be all that an operation needs. What cannot be claimed at once
// is being driven by somebody, and is looked at next time.
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
    drive_lane(lane);  // as everybody who lets go of a claim: something may have been pushed meanwhile
  }
  if (mailboxes_.empty() || !mailboxes_lock_.try_lock()) return;
  const auto ops = mailboxes_.pending();  // first: what comes in later was perhaps not stepped
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
  const auto absent = [&](int r) {
    return memory_->block(r).state.load(std::memory_order_seq_cst) != RankState::active;
  };
  std::vector<int> peers;
  for (int r = 0; r < memory_->size(); ++r) {
    if (r != memory_->rank() && !absent(r)) peers.push_back(r);
  }
  std::vector<int> dead = memory_->find_dead(peers);
  std::erase_if(dead, absent);
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
  // After that, not before: whoever failed because a rank left or died has found it before it said so, and so does
  // this rank.
  std::vector<int> left;
  std::vector<int> others;
  for (int r = 0; r < memory_->size(); ++r) {
    if (r == me) continue;
    const RankState state = memory_->block(r).state.load(std::memory_order_seq_cst);
    (state == RankState::left ? left : others).push_back(r);
  }
  // Who failed has said why; that its process then came to its end is no news.
  std::vector<int> dead = memory_->find_dead(others);
  std::erase_if(dead,
                [&](int r) { return memory_->block(r).state.load(std::memory_order_seq_cst) == RankState::failed; });

  std::exception_ptr cause;
  const Clock::time_point now = Clock::now();
  for_each_stalled([&](LocalOp& operation, Clock::time_point deadline) {
    if (cause) return;
    const std::vector<int> awaited = operation.awaited_ranks();
    const auto context = [&] { return fmt::format("{} on rank {} of the {} group", operation.describe(), me, name()); };
    std::vector<int> missed;
    std::set_intersection(awaited.begin(), awaited.end(), left.begin(), left.end(), std::back_inserter(missed));
    if (operation.awaits_any() && missed.size() < awaited.size()) missed.clear();
    if (!dead.empty()) {
      cause = std::make_exception_ptr(PeerLost(
          fmt::format("{}: rank {} died. Make a new group without it.", context(), fmt::join(dead, ", ")), dead));
    } else if (!missed.empty()) {  // before those who failed because of it, so that all are told the same
      cause = std::make_exception_ptr(
          PeerLost(fmt::format("{}: rank {} left the group", context(), fmt::join(missed, ", ")), missed));
    } else if (failed_peer_error) {
      cause = failed_peer_error;
    } else if (now >= deadline && !awaited.empty()) {  // who was awaited at the last step may have come since
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
