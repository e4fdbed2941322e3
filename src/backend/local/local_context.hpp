// LocalContext: the lanes of one rank, their drivers, the progress thread and failure handling.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <hookline/backend/backend.hpp>

#include "backend/local/backoff.hpp"
#include "backend/local/collective_op.hpp"
#include "backend/local/local_op.hpp"
#include "backend/local/mailboxes.hpp"
#include "backend/local/memory.hpp"

namespace hookline::local {

struct LocalContextOptions {
  std::string name;             ///< name of the backend, for messages
  bool block_at_once = false;   ///< waiting threads block without spinning, for peers that wait for a network
  bool progress_thread = true;  ///< tests disable it and call drive()
};

/// The right to drive a lane or the mailboxes. One thread at a time holds it.
class DriverLock {
 public:
  bool try_lock() noexcept {
    if (locked_.exchange(true, std::memory_order_seq_cst)) return false;
    owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return true;
  }
  void unlock() noexcept {
    owner_.store({}, std::memory_order_relaxed);
    locked_.store(false, std::memory_order_seq_cst);
  }
  bool held_by_this_thread() const noexcept {
    return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

 private:
  std::atomic<bool> locked_ = false;
  std::atomic<std::thread::id> owner_;
};

/// The operations of one rank. The driver of a lane, or of the mailboxes, is the thread that holds its DriverLock: a
/// thread that waits, a thread that starts an operation, or the progress thread. The progress thread drives only while
/// no other thread waits. A lane's mutex guards its queue; its driver lock guards `current` and `rounds`.
///
/// Every queued operation finds a driver. Dekker handshake, all seq_cst: start() stores `submitted`, then tries the
/// driver lock and returns if another thread holds it; that thread unlocks, then loads `submitted` again.
///
/// Failures: fail() stores is_unusable_, then completes the queued operations under each driver lock in turn. start()
/// loads is_unusable_ after it has queued an operation, so none is missed. A completion callback may call fail() under
/// a driver lock; its thread then completes the remaining operations after it has unlocked.
class LocalContext : public std::enable_shared_from_this<LocalContext> {
 public:
  LocalContext(std::unique_ptr<Memory> memory, LocalContextOptions options);
  LocalContext(const LocalContext&) = delete;
  LocalContext& operator=(const LocalContext&) = delete;
  ~LocalContext();

  /// Joins the group and starts the progress thread. Call once, before all other methods.
  void open();
  /// Leaves the group: fails pending operations and ends the threads. Does not wait for a peer.
  void close() noexcept;

  Memory& memory() noexcept { return *memory_; }
  const std::string& name() const noexcept { return options_.name; }

  std::shared_ptr<LocalOp> start(Operation&& operation, int lane, Milliseconds timeout);

  /// Throws InvalidArgument if this process is a forked child of the process that created the group.
  void refuse_in_forked_child(std::string_view call) const;

  /// Steps all pending operations once. Returns true if any made progress.
  bool drive();
  /// Drives until the operation is done, at its deadline at the latest. Blocks in a futex wait if there is nothing to
  /// do.
  void wait_for(const LocalOp& op);
  /// Fails the group if a peer has failed, or has died or left while an operation awaits it, or if an operation has
  /// timed out.
  void check_peers();

  /// Returns the peers that died without leaving or failing first.
  std::vector<int> dead_ranks();

  /// Fails all pending and future operations, and publishes the failure to the peers. The first cause is kept.
  void fail(std::exception_ptr cause);
  std::exception_ptr error() const;
  /// Returns why no operation can start (failed or shut down), or null.
  std::exception_ptr unusable_error() const;

  /// Runs a task on the worker thread, which starts with the first task.
  void post_to_worker(Task task);
  /// Wakes this rank's sleeping threads.
  void notify_self() noexcept;
  /// Wakes the progress thread to drive pending operations.
  void wake_progress_thread();

 private:
  class LaneOp;
  class FailedOp;
  struct Lane {
    std::mutex mutex;
    std::deque<std::shared_ptr<LocalOp>> queue;
    std::atomic<std::uint64_t> submitted = 0;  ///< operations so far; written under the mutex
    std::atomic<std::uint64_t> completed = 0;  ///< operations done; written under the driver lock
    DriverLock driver_lock;
    std::shared_ptr<LocalOp> current;  ///< the operation being stepped; not in the queue
    std::uint64_t rounds = 0;
    LaneScratch scratch;

    bool idle() const noexcept {
      const std::uint64_t done = completed.load(std::memory_order_acquire);  // first, since completed <= submitted
      return submitted.load(std::memory_order_seq_cst) == done;
    }
  };

  template <class Done>
  void drive_until(Done done, Clock::time_point deadline);
  bool drive_lane(Lane& lane, bool locked = false);
  bool step_lane(Lane& lane, std::exception_ptr& fatal);
  bool drive_mailboxes();
  void release(DriverLock& lock, const std::exception_ptr& fatal);
  void fail_pending(const std::exception_ptr& cause);
  bool may_spin();
  BackoffPhase first_backoff_phase() {
    return options_.block_at_once ? BackoffPhase::block : may_spin() ? BackoffPhase::spin : BackoffPhase::yield;
  }
  void run_progress_thread();
  int idle_wait(int idle_polls);
  bool has_waiter() const noexcept { return waiting_threads_.load(std::memory_order_seq_cst) > 0; }
  bool has_pending() const noexcept;
  template <class F>
  void for_each_stalled(F f);

  const std::unique_ptr<Memory> memory_;
  const LocalContextOptions options_;
  const std::uint64_t fork_generation_;
  std::array<Lane, kNumLanes> lanes_;
  enum class SpinDecision : std::uint8_t { unknown, no, yes };
  std::atomic<SpinDecision> spin_decision_ = SpinDecision::unknown;  ///< known once all ranks have joined
  Mailboxes mailboxes_;
  DriverLock mailboxes_lock_;

  mutable std::mutex state_mutex_;
  std::exception_ptr error_;
  bool closed_ = false;
  std::atomic<bool> is_unusable_ = false;  ///< failed or closed; read without the mutex

  std::mutex progress_mutex_;
  std::condition_variable progress_wake_;
  bool progress_requested_ = false;              ///< drive now instead of at the next poll
  std::atomic<bool> operation_started_ = false;  ///< an operation was started since the last poll
  std::atomic<bool> progress_asleep_ = false;    ///< the thread blocks until it is woken
  std::atomic<bool> stopping_ = false;
  std::atomic<int> waiting_threads_ = 0;
  std::thread progress_thread_;

  std::mutex worker_mutex_;
  std::unique_ptr<ThreadExecutor> worker_;

  std::shared_ptr<LocalContext> leaked_self_;  ///< leaks this object in a forked child
};

}  // namespace hookline::local
