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

#include <hookline/backend/engine.hpp>

#include "backend/engine/lane.hpp"
#include "backend/engine/mail.hpp"
#include "backend/engine/operation.hpp"
#include "backend/engine/outbox.hpp"
#include "backend/engine/waits.hpp"

namespace hookline::engine {

/// The state of one rank in a group. A thread that detects a failure calls fail(), which stores the error, sends an
/// abort to the peers, interrupts all waits, and fails the queued operations; the driver of a lane fails that lane. An
/// abort received from a peer is adopted unchanged.
///
/// Invariant: Lane::push() checks unusable() under the lane's mutex, so that no operation is queued after the lane has
/// failed.
class Station : public std::enable_shared_from_this<Station> {
 public:
  explicit Station(std::shared_ptr<Engine> engine);
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;
  ~Station();

  void open();
  /// Leaves the group: sends goodbyes, fails pending operations, ends the threads, and closes the connections.
  void close() noexcept;

  Engine& engine() noexcept { return *engine_; }
  Waits& waits() noexcept { return waits_; }
  Mail& mail() noexcept { return mail_; }
  Outbox& outbox() noexcept { return outbox_; }
  Lane& lane(int index) noexcept { return *lanes_[static_cast<std::size_t>(index)]; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  const std::string& name() const noexcept { return name_; }

  WorkPtr start(Collective&& collective, int lane, Milliseconds timeout);

  /// Throws InvalidArgument if this process is a forked child of the process that created the group.
  void refuse_in_forked_child(std::string_view what) const;

  /// Fails all pending and future operations, and sends an abort to the peers. The first cause is kept. The text of an
  /// abort that came from a peer is forwarded unchanged.
  void fail(std::exception_ptr cause, const std::string* told = nullptr);
  std::exception_ptr broken() const;
  bool unusable() const noexcept { return unusable_.load(std::memory_order_seq_cst); }
  /// Returns why no operation can start (failed or shut down), or null.
  std::exception_ptr why_unusable() const;

  /// Returns the error for a disconnected peer. Waits for an explanation that may be in flight: the cause reported by
  /// the peer or another rank, or a departed rank whose message is missing, because the peer may have failed due to it.
  std::exception_ptr explain(const std::exception_ptr& lost, int rank, const std::string& what,
                             const std::function<bool(int rank)>& lacks);
  /// Returns the error for a peer whose disconnect has no other explanation than its death.
  std::exception_ptr died(const std::string& what, int rank, const std::exception_ptr& lost) const;
  /// Wakes diagnose_disconnect(): the listener thread has polled.
  void wake_explaining();
  /// Called when the goodbye of a peer has arrived.
  void peer_left(int rank);
  bool has_left(int rank) const noexcept { return left_[static_cast<std::size_t>(rank)].load(); }

  /// Returns the peers that disconnected without a goodbye.
  std::vector<int> dead_ranks();

  /// Closes the connections of a group that failed at least `since` ago, when the aborts have been delivered.
  void close_if_broken(Milliseconds since) noexcept;
  bool engine_closed() const noexcept { return engine_closed_.load(); }

  /// Returns "<what> on rank 1 of the gloo group".
  std::string context(const std::string& what) const;
  /// Returns the error of an operation for which some ranks did not join in time.
  std::exception_ptr not_in_time(const Operation& operation, const std::vector<int>& missing) const;

  /// Runs a task on the worker thread, which starts with the first task.
  void post(Task task);

 private:
  const std::shared_ptr<Engine> engine_;
  const int rank_;
  const int size_;
  const std::string name_;
  const std::uint64_t fork_generation_;
  Waits waits_;
  Mail mail_;
  Outbox outbox_;
  std::array<std::unique_ptr<Lane>, kEngineLanes> lanes_;
  std::array<std::uint64_t, kEngineLanes> numbers_ = {};  ///< operations so far, by lane; guarded by the lane's mutex
  std::vector<std::atomic<bool>> left_;

  std::mutex lost_mutex_;
  std::vector<std::optional<Clock::time_point>> lost_since_;  ///< by rank; when dead_ranks() first saw the disconnect

  mutable std::mutex mutex_;
  std::condition_variable news_;  ///< the group failed, a peer departed, or the listener polled
  std::exception_ptr broken_;
  Clock::time_point broken_since_;
  bool closed_ = false;
  std::atomic<bool> unusable_ = false;
  std::atomic<bool> engine_closed_ = false;

  std::thread ticking_;
  std::thread listening_;
  std::mutex worker_mutex_;
  std::unique_ptr<ThreadExecutor> worker_;
  std::shared_ptr<Station> itself_;  ///< leaks this object in a forked child
};

}  // namespace hookline::engine
