// One rank's end of a group over a transport: lanes, control channel, and failure handling.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <hookline/backend/transport.hpp>

#include "backend/p2p/control_channel.hpp"
#include "backend/p2p/control_sender.hpp"
#include "backend/p2p/lane.hpp"
#include "backend/p2p/transport_op.hpp"
#include "backend/p2p/watchdog.hpp"

namespace hookline::p2p {

/// The state of one rank in a group. A thread that detects a failure calls fail(), which stores the error, sends an
/// abort to the peers, interrupts all waits, and fails the queued operations; the driver of a lane fails that lane. An
/// abort received from a peer is adopted unchanged.
///
/// Invariant: Lane::push() checks unusable() under the lane's mutex, so that no operation is queued after the lane has
/// failed.
class P2PContext : public std::enable_shared_from_this<P2PContext> {
 public:
  explicit P2PContext(std::shared_ptr<Transport> transport);
  P2PContext(const P2PContext&) = delete;
  P2PContext& operator=(const P2PContext&) = delete;
  ~P2PContext();

  void open();
  /// Leaves the group: sends goodbyes, fails pending operations, ends the threads, and closes the connections.
  void close() noexcept;

  Transport& transport() noexcept { return *transport_; }
  Watchdog& watchdog() noexcept { return watchdog_; }
  ControlChannel& control_channel() noexcept { return control_channel_; }
  ControlSender& control_sender() noexcept { return control_sender_; }
  Lane& lane(int index) noexcept { return *lanes_[static_cast<std::size_t>(index)]; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const std::string& name() const noexcept { return name_; }

  WorkPtr start(Operation&& operation, int lane, Milliseconds timeout);

  /// Throws InvalidArgument if this process is a forked child of the process that created the group.
  void refuse_in_forked_child(std::string_view call) const;

  /// Fails all pending and future operations, and sends an abort to the peers. The first cause is kept. The text of an
  /// abort that came from a peer is forwarded unchanged.
  void fail(std::exception_ptr cause, const std::string* peer_text = nullptr);
  std::exception_ptr error() const;
  bool unusable() const noexcept { return unusable_.load(std::memory_order_seq_cst); }
  /// Returns why no operation can start (failed or shut down), or null.
  std::exception_ptr unusable_error() const;

  /// Returns the error for a disconnected peer. Waits for an explanation that may be in flight: the cause reported by
  /// the peer or another rank, or a departed rank whose message is missing, because the peer may have failed due to it.
  std::exception_ptr diagnose_disconnect(const std::exception_ptr& disconnect, int rank, const std::string& description,
                                         const std::function<bool(int rank)>& is_missing);
  /// Returns the error for a peer whose disconnect has no other explanation than its death.
  std::exception_ptr peer_died_error(const std::string& description, int rank,
                                     const std::exception_ptr& disconnect) const;
  /// Wakes diagnose_disconnect(): the listener thread has polled.
  void wake_diagnosis();
  /// Called when the goodbye of a peer has arrived.
  void on_peer_goodbye(int rank);
  bool has_departed(int rank) const noexcept { return departed_[static_cast<std::size_t>(rank)].load(); }

  /// Returns the peers that disconnected without a goodbye.
  std::vector<int> dead_ranks();

  /// Closes the connections of a group that failed at least `delay` ago, when the aborts have been delivered.
  void close_after_abort(Milliseconds delay) noexcept;
  bool transport_closed() const noexcept { return transport_closed_.load(); }

  /// Returns "<operation> on rank 1 of the gloo group".
  std::string error_prefix(const std::string& operation) const;
  /// Returns the error of an operation for which some ranks did not join in time.
  std::exception_ptr timeout_error(const TransportOp& op, const std::vector<int>& missing) const;

  /// Runs a task on the worker thread, which starts with the first task.
  void post(Task task);

 private:
  const std::shared_ptr<Transport> transport_;
  const int rank_;
  const int size_;
  const std::string name_;
  const std::uint64_t fork_generation_;
  Watchdog watchdog_;
  ControlChannel control_channel_;
  ControlSender control_sender_;
  std::array<std::unique_ptr<Lane>, kNumLanes> lanes_;
  std::array<std::uint64_t, kNumLanes> sequences_ = {};  ///< operations so far, by lane; guarded by the lane's mutex
  std::vector<std::atomic<bool>> departed_;

  std::mutex disconnect_mutex_;
  std::vector<std::optional<Clock::time_point>>
      disconnected_since_;  ///< by rank; when dead_ranks() first saw the disconnect

  mutable std::mutex mutex_;
  std::condition_variable state_changed_;  ///< the group failed, a peer departed, or the listener polled
  std::exception_ptr error_;
  Clock::time_point failed_at_;
  bool closed_ = false;
  std::atomic<bool> unusable_ = false;
  std::atomic<bool> transport_closed_ = false;

  std::thread watchdog_thread_;
  std::thread listener_thread_;
  std::mutex worker_mutex_;
  std::unique_ptr<ThreadExecutor> worker_;
  std::shared_ptr<P2PContext> leaked_self_;  ///< leaks this object in a forked child
};

}  // namespace hookline::p2p
