// Failure handling of LocalContext: detects failures, publishes them to the peers and fails pending operations.
#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/embedded/bell.hpp"
#include "backend/embedded/engine.hpp"
#include "backend/monitored.hpp"
#include "core/fork.hpp"

namespace hookline::embedded {
namespace {

/// Returns the rank that gave up first: a rank that gives up because another one did passes that one's number on.
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

std::exception_ptr Engine::broken() const {
  const std::lock_guard lock(state_mutex_);
  return broken_;
}

std::exception_ptr Engine::why_unusable() const {
  if (!is_unusable_.load(std::memory_order_seq_cst)) return nullptr;
  const std::lock_guard lock(state_mutex_);
  if (broken_) return broken_;
  return std::make_exception_ptr(
      Aborted(fmt::format("the {} group was shut down on rank {}", name(), memory_->rank()), {memory_->rank()}));
}

void Engine::fail(std::exception_ptr cause) {
  if (fork_generation_ != core::fork_generation()) return;  // the peers would take it for the parent's word
  {
    const std::lock_guard lock(state_mutex_);
    if (broken_ || closed_) return;
    broken_ = cause;
    is_unusable_.store(true, std::memory_order_seq_cst);
    RankBlock& mine = memory_->block(memory_->rank());
    const std::string text = hookline::describe(cause).substr(0, kCauseBytes - 1);
    std::memcpy(mine.cause.data(), text.c_str(), text.size() + 1);
    mine.failure_origin = failure_origin(cause, memory_->rank());
    mine.standing.store(Standing::gave_up, std::memory_order_seq_cst);
  }
  ring_peers(*memory_);
  end_all(cause);
}

// Takes each claim in turn: while a driver is inside an operation, its tensors are being touched.
void Engine::end_all(const std::exception_ptr& cause) {
  memory_->await_hands_off();
  const auto claimed = [](Claim& claim) {
    if (claim.is_mine()) return false;
    while (!claim.take()) std::this_thread::yield();
    return true;
  };
  for (Lane& lane : lanes_) {
    if (!claimed(lane.claim)) continue;
    std::deque<std::shared_ptr<Pending>> ended;
    {
      const std::lock_guard lock(lane.mutex);
      ended.assign(lane.queue.begin(), lane.queue.end());
      lane.queue.clear();
    }
    if (lane.current) ended.push_front(std::exchange(lane.current, nullptr));
    lane.ended.store(lane.ended.load(std::memory_order_relaxed) + ended.size(), std::memory_order_seq_cst);
    lane.claim.let_go();
    for (const auto& operation : ended) operation->complete(cause);
  }
  if (!claimed(mail_claim_)) return;
  mail_.end_all(cause);
  mail_claim_.let_go();
}

void Engine::let_go(Claim& claim, const std::exception_ptr& fatal) {
  claim.let_go();
  if (fatal) fail(fatal);
  // Also where fail() had nothing to do: who failed it under this claim has left what is queued behind it.
  if (const std::exception_ptr cause = why_unusable()) end_all(cause);
}

// Calls f for operations that were stepped and are not over, before anybody else can step them, with the time by which
// they must be: those behind the head of a lane wait for it, and may have less time. So what a rank posted
// before it was seen to be gone is taken first: it may be all that an operation needs. What cannot be claimed at once
// is being driven by somebody, and is looked at next time.
template <class F>
void Engine::for_each_stuck(F f) {
  std::exception_ptr fatal;
  for (Lane& lane : lanes_) {
    if (lane.idle() || !lane.claim.take()) continue;
    while (step_lane(lane, fatal)) {
    }
    if (lane.current) {
      Clock::time_point earliest = lane.current->deadline();
      {
        const std::lock_guard lock(lane.mutex);
        for (const auto& operation : lane.queue) earliest = std::min(earliest, operation->deadline());
      }
      f(*lane.current, earliest);
    }
    let_go(lane.claim, fatal);
    if (fatal) return;
    drive_lane(lane);  // as everybody who lets go of a claim: something may have been pushed meanwhile
  }
  if (mail_.empty() || !mail_claim_.take()) return;
  const auto operations = mail_.pending();  // first: what comes in later was perhaps not stepped
  try {
    while (mail_.step()) {
    }
    for (const auto& operation : operations) {
      if (!operation->over()) f(*operation, operation->deadline());
    }
  } catch (...) {
    fatal = std::current_exception();
  }
  let_go(mail_claim_, fatal);
}

std::vector<int> Engine::dead_ranks() {
  const auto absent = [&](int r) {
    return memory_->block(r).standing.load(std::memory_order_seq_cst) != Standing::present;
  };
  std::vector<int> peers;
  for (int r = 0; r < memory_->size(); ++r) {
    if (r != memory_->rank() && !absent(r)) peers.push_back(r);
  }
  std::vector<int> dead = memory_->find_dead(peers);
  std::erase_if(dead, absent);
  return dead;
}

void Engine::look_around() {
  if (is_unusable_.load(std::memory_order_acquire) || !anything_pending()) return;
  const int me = memory_->rank();
  std::exception_ptr gave_up;
  for (int r = 0; r < memory_->size() && !gave_up; ++r) {
    const RankBlock& peer = memory_->block(r);
    if (r == me || peer.standing.load(std::memory_order_seq_cst) != Standing::gave_up) continue;
    const std::string cause(peer.cause.data(), strnlen(peer.cause.data(), kCauseBytes));
    const bool known = peer.failure_origin >= 0 && peer.failure_origin < memory_->size();
    gave_up = std::make_exception_ptr(
        Aborted(fmt::format("rank {} gave up: {}", r, cause), {known ? peer.failure_origin : r}));
  }
  // After that, not before: whoever gave up because a rank left or died has found it before it said so, and so does
  // this rank.
  std::vector<int> left;
  std::vector<int> others;
  for (int r = 0; r < memory_->size(); ++r) {
    if (r == me) continue;
    const Standing standing = memory_->block(r).standing.load(std::memory_order_seq_cst);
    (standing == Standing::left ? left : others).push_back(r);
  }
  // Who gave up has said why; that its process then came to its end is no news.
  std::vector<int> dead = memory_->find_dead(others);
  std::erase_if(dead,
                [&](int r) { return memory_->block(r).standing.load(std::memory_order_seq_cst) == Standing::gave_up; });

  std::exception_ptr cause;
  const Clock::time_point now = Clock::now();
  for_each_stuck([&](Pending& operation, Clock::time_point deadline) {
    if (cause) return;
    const std::vector<int> awaited = operation.awaited();
    const auto context = [&] { return fmt::format("{} on rank {} of the {} group", operation.describe(), me, name()); };
    std::vector<int> missed;
    std::set_intersection(awaited.begin(), awaited.end(), left.begin(), left.end(), std::back_inserter(missed));
    if (operation.awaits_any() && missed.size() < awaited.size()) missed.clear();
    if (!dead.empty()) {
      cause = std::make_exception_ptr(PeerLost(
          fmt::format("{}: rank {} died. Make a new group without it.", context(), fmt::join(dead, ", ")), dead));
    } else if (!missed.empty()) {  // before those who gave up because of it, so that all are told the same
      cause = std::make_exception_ptr(
          PeerLost(fmt::format("{}: rank {} left the group", context(), fmt::join(missed, ", ")), missed));
    } else if (gave_up) {
      cause = gave_up;
    } else if (now >= deadline && !awaited.empty()) {  // who was awaited at the last step may have come since
      const auto waited = std::chrono::duration_cast<Milliseconds>(now - operation.time_started());
      std::string text =
          fmt::format("{}: rank {} did not come within {} ms", context(), fmt::join(awaited, ", "), waited.count());
      if (operation.collective().type == OpType::monitored_barrier) {
        text = backend::failed_to_pass(me, awaited, operation.collective().wait_all_ranks, waited);
      }
      cause = std::make_exception_ptr(Timeout(text, awaited));
    }
  });
  if (cause) fail(cause);
}

}  // namespace hookline::embedded
