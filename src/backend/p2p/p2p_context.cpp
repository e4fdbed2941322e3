// Opens and closes the context, starts operations, and handles failures.
#include "backend/p2p/p2p_context.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/monitored_barrier.hpp"
#include "backend/op_traits.hpp"
#include "backend/p2p/collective_op.hpp"
#include "core/fork.hpp"
#include "core/thread.hpp"

namespace hookline::p2p {
namespace {

/// An operation started on an unusable group. It is complete from the start.
class FailedOp final : public TransportOp {
 public:
  using TransportOp::TransportOp;
  std::string describe() const override { return "operation on a failed group"; }

 private:
  void drive() override {}
  void expedite() override {}
};

}  // namespace

P2PContext::P2PContext(std::shared_ptr<Transport> transport)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      name_(transport_->name()),
      fork_generation_(core::fork_generation()),
      watchdog_(size_, [this] { control_channel_.check_peers(); }),
      control_channel_(*this),
      control_sender_(*this),
      departed_(static_cast<std::size_t>(size_)),
      disconnected_since_(static_cast<std::size_t>(size_)) {
  for (auto& lane : lanes_) lane = std::make_unique<Lane>(*this);
}

P2PContext::~P2PContext() { close(); }

void P2PContext::open() {
  if (size_ == 1) return;
  watchdog_thread_ = core::start_thread("hookline-watch", [this, keep = shared_from_this()] { watchdog_.run(); });
  try {
    listener_thread_ =
        core::start_thread("hookline-listen", [this, keep = shared_from_this()] { control_channel_.run_listener(); });
  } catch (...) {
    close();  // the watchdog thread holds a reference until it ends
    throw;
  }
}

void P2PContext::close() noexcept {
  if (fork_generation_ != core::fork_generation()) {
    // The threads exist only in the parent, so their mutexes and condition variables cannot be destroyed: leak all.
    leaked_self_ = weak_from_this().lock();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    unusable_.store(true, std::memory_order_seq_cst);
  }
  if (!error()) {
    control_sender_.broadcast_goodbye({.type = ControlType::goodbye}, "");
    control_sender_.flush();
  }
  watchdog_.shutdown();
  for (const auto& lane : lanes_) lane->fail_pending();
  control_channel_.fail_pending();
  control_sender_.fail_pending();
  for (const auto& lane : lanes_) lane->stop();
  control_channel_.data_lane().stop();
  control_sender_.stop();
  control_sender_.flush_goodbyes();
  control_sender_.release_retained();
  control_channel_.stop_listener();
  watchdog_.stop_thread();
  core::join_or_detach(listener_thread_);
  core::join_or_detach(watchdog_thread_);
  transport_closed_ = true;
  transport_->close();
  std::unique_ptr<ThreadExecutor> worker;  // destroyed without the lock, since its last tasks may post others
  const std::lock_guard lock(worker_mutex_);
  worker.swap(worker_);
}

void P2PContext::refuse_in_forked_child(std::string_view call) const {
  if (fork_generation_ == core::fork_generation()) return;
  throw InvalidArgument(fmt::format(
      "{} on a {} group that was made before fork(). Create a new group in the child process.", call, name_));
}

WorkPtr P2PContext::start(Operation&& operation, int lane_index, Milliseconds timeout) {
  refuse_in_forked_child(hookline::name(operation.type));
  if (const std::exception_ptr cause = unusable_error()) {
    auto op = std::make_shared<FailedOp>(shared_from_this(), kMaxTimeout, std::move(operation));
    op->complete(cause);
    return op;
  }
  if (operation.type == OpType::send) return control_channel_.send(std::move(operation), timeout);
  if (backend::is_point_to_point(operation.type)) return control_channel_.receive(std::move(operation), timeout);
  Lane& lane = this->lane(lane_index);
  auto op = std::make_shared<CollectiveOp>(shared_from_this(), timeout, lane_index, std::move(operation));
  std::uint64_t& sequence = sequences_[static_cast<std::size_t>(lane_index)];
  if (!lane.push(op, [&] { op->post_headers(++sequence); }, op->is_large())) {
    op->finish(unusable_error());
  }
  return op;
}

std::exception_ptr P2PContext::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

std::exception_ptr P2PContext::unusable_error() const {
  if (!unusable()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (error_) return error_;
  return std::make_exception_ptr(Aborted(fmt::format("the {} group was shut down on rank {}", name_, rank_), {rank_}));
}

void P2PContext::fail(std::exception_ptr cause, const std::string* peer_text) {
  if (fork_generation_ != core::fork_generation()) return;  // an abort would appear to come from the parent
  Envelope envelope{.type = ControlType::abort};
  AbortCause abort_cause{.ranks = {rank_}, .text = peer_text ? *peer_text : describe(cause)};
  try {
    std::rethrow_exception(cause);
  } catch (const PeerLost& e) {
    envelope.dtype = kPeerLost;
    abort_cause.ranks = e.ranks();
  } catch (const Error& e) {
    if (peer_text) abort_cause.ranks = e.ranks();
    else abort_cause.text = fmt::format("rank {} failed: {}", rank_, abort_cause.text);
  } catch (...) {
    if (!peer_text) abort_cause.text = fmt::format("rank {} failed: {}", rank_, abort_cause.text);
  }
  {
    const std::lock_guard lock(mutex_);
    if (error_ || closed_) return;
    error_ = cause;
    failed_at_ = Clock::now();
    unusable_.store(true, std::memory_order_seq_cst);
  }
  state_changed_.notify_all();
  const std::string bytes = encode_cause(abort_cause, envelope);
  control_sender_.broadcast_goodbye(envelope, bytes);
  watchdog_.shutdown(peer_text != nullptr);
  for (const auto& lane : lanes_) {
    if (peer_text) lane->wake();
    else lane->fail_pending();
  }
  control_channel_.fail_pending();
  control_sender_.fail_pending();
  watchdog_.keep_running();
}

// Closing also ends the sending of abandoned messages: the transport would keep trying, although the peer no longer
// receives them.
void P2PContext::close_after_abort(Milliseconds delay) noexcept {
  if (!unusable() || transport_closed_.load()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!error_ || closed_ || Clock::now() < failed_at_ + delay) {
      if (error_) watchdog_.keep_running();
      return;
    }
    if (transport_closed_.exchange(true)) return;
  }
  control_sender_.release_retained();
  transport_->close();
}

void P2PContext::on_peer_goodbye(int rank) {
  {
    const std::lock_guard lock(mutex_);
    departed_[static_cast<std::size_t>(rank)] = true;
  }
  state_changed_.notify_all();
  watchdog_.mark_departed(rank);
  transport_->on_peer_departed(rank);
  control_channel_.check_peers();
}

// Blames, in this order: the cause that any rank has reported (error_, set by fail() in any thread); the peer itself,
// if it said goodbye (departed_, set by the listener thread); another departed rank whose message is missing; and, once
// all messages have been drained, the peer, which must have died.
std::exception_ptr P2PContext::diagnose_disconnect(const std::exception_ptr& disconnect, int rank,
                                                   const std::string& description,
                                                   const std::function<bool(int rank)>& is_missing) {
  const auto departed_error = [&](int peer) {
    return std::make_exception_ptr(
        PeerLost(fmt::format("{}: rank {} left the group", error_prefix(description), peer), {peer}));
  };
  std::vector<bool> excused(static_cast<std::size_t>(size_));  // departed ranks whose messages have arrived
  const auto next_departed = [&] {
    for (int r = 0; r < size_; ++r) {
      if (has_departed(r) && !excused[static_cast<std::size_t>(r)]) return r;
    }
    return -1;
  };
  const Clock::time_point start = Clock::now();
  std::uint64_t poll_epoch = 0;
  enum class Phase : std::uint8_t { goodbye, poll, drain } phase = Phase::goodbye;
  Clock::time_point deadline = start + kSuspectGrace;
  std::unique_lock lock(mutex_);
  while (!closed_) {
    const bool changed = state_changed_.wait_until(lock, deadline, [&] {
      return error_ || closed_ || next_departed() >= 0 ||
             (phase == Phase::poll && control_channel_.poll_epoch() != poll_epoch);
    });
    if (error_) return error_;
    if (has_departed(rank)) return departed_error(rank);
    if (const int departed = next_departed(); departed >= 0) {
      excused[static_cast<std::size_t>(departed)] = true;
      lock.unlock();
      if (is_missing(departed)) return departed_error(departed);
      lock.lock();
    } else if (phase == Phase::goodbye) {
      phase = Phase::poll;
      deadline = start + kMaxSuspectGrace;
      poll_epoch = control_channel_.poll_epoch();
      lock.unlock();
      control_channel_.poke_listener();
      lock.lock();
    } else if (phase == Phase::poll && changed) {
      phase = Phase::drain;
      deadline = Clock::now() + kDrainGrace;
    } else {
      break;
    }
  }
  if (error_) return error_;
  return peer_died_error(description, rank, disconnect);
}

std::exception_ptr P2PContext::peer_died_error(const std::string& description, int rank,
                                               const std::exception_ptr& disconnect) const {
  return std::make_exception_ptr(
      PeerLost(fmt::format("{}: rank {} died or cannot be reached. Create a new group without it.",
                           error_prefix(description), rank),
               {rank}, disconnect));
}

// Counts a disconnected peer as dead only after kGoodbyeGrace. A leaving peer says goodbye before it closes its
// connections, but this rank may see the disconnect first.
std::vector<int> P2PContext::dead_ranks() {
  constexpr Milliseconds kGoodbyeGrace{200};
  try {
    if (const std::exception_ptr cause = error()) std::rethrow_exception(cause);
  } catch (const PeerLost& e) {
    return e.ranks();
  } catch (...) {
    return {};
  }
  std::vector<int> dead;
  const std::lock_guard lock(disconnect_mutex_);
  for (int r = 0; r < size_ && !unusable(); ++r) {
    std::optional<Clock::time_point>& since = disconnected_since_[static_cast<std::size_t>(r)];
    if (r == rank_ || has_departed(r)) continue;
    try {
      transport_->throw_if_disconnected(r);
      since.reset();
    } catch (const PeerLost&) {
      const Clock::time_point now = Clock::now();
      if (!since) since = now;
      if (now - *since >= kGoodbyeGrace) dead.push_back(r);
    }
  }
  return dead;
}

void P2PContext::wake_diagnosis() {
  const std::lock_guard lock(mutex_);
  state_changed_.notify_all();
}

std::string P2PContext::error_prefix(const std::string& operation) const {
  return fmt::format("{} on rank {} of the {} group", operation, rank_, name_);
}

std::exception_ptr P2PContext::timeout_error(const TransportOp& op, const std::vector<int>& missing) const {
  const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - op.time_started());
  const Operation& operation = op.operation();
  if (operation.type == OpType::monitored_barrier) {
    return std::make_exception_ptr(
        Timeout(backend::monitored_barrier_error(rank_, missing, operation.wait_all_ranks, waited), missing));
  }
  return std::make_exception_ptr(
      Timeout(fmt::format("{}: rank {} did not join within {} ms", error_prefix(op.describe()),
                          fmt::join(missing, ", "), waited.count()),
              missing));
}

void P2PContext::post(Task task) {
  const std::lock_guard lock(worker_mutex_);
  if (!worker_) worker_ = std::make_unique<ThreadExecutor>("hookline-worker");
  worker_->post(std::move(task));
}

}  // namespace hookline::p2p
