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
  std::string name;             ///< of the backend, for messages
  bool block_at_once = false;   ///< who waits gives its core away at once: for peers that wait for a network
  bool progress_thread = true;  ///< without one, somebody must call drive(): the tests' scheduler does
};

/// The right to drive a lane or the mail: one thread's at a time.
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

/// Work is claimed, one lane or the mail at a time, by one driver: a thread that waits, the thread that starts an
/// operation, or the progress thread. The progress thread drives only while no other thread waits. A lane's queue
/// changes under its mutex, `current` and `rounds` under its claim. Who does not get the claim leaves: the holder looks
/// at `pushes` again after letting go, so that no operation is left unposted.
///
/// Failing: whoever notices calls fail(), which sets broken_ first and then, under each claim in turn, ends what is
/// queued; start() looks at is_unusable_ after queueing, so that nothing slips in between. What is called at the end of
/// an operation may fail the group under a claim: then the holder ends the rest when it has let go.
class LocalContext : public std::enable_shared_from_this<LocalContext> {
 public:
  LocalContext(std::unique_ptr<Memory> memory, LocalContextOptions options);
  LocalContext(const LocalContext&) = delete;
  LocalContext& operator=(const LocalContext&) = delete;
  ~LocalContext();

  /// Joins the group and starts the progress thread. To be called once, before anything else.
  void open();
  /// Leaves the group: fails what is pending, stops the thread. Does not wait for a peer.
  void close() noexcept;

  Memory& memory() noexcept { return *memory_; }
  const std::string& name() const noexcept { return options_.name; }

  std::shared_ptr<LocalOp> start(Operation&& operation, int lane, Milliseconds timeout);

  /// Throws InvalidArgument where this process is a forked child of the one that made the group.
  void refuse_in_forked_child(std::string_view call) const;

  /// One pass over everything that is pending. True where something moved.
  bool drive();
  /// Drives until the operation is over, which it is at its deadline at the latest; sleeps when there is nothing to do.
  void wait_for(const LocalOp& op);
  /// Looks for dead, gone and failing peers and for operations whose time is up; breaks the group where there are any.
  void check_peers();

  /// Returns the peers that died without leaving or giving up first.
  std::vector<int> dead_ranks();

  /// Fails everything, now and later, and tells the peers. The first cause stays.
  void fail(std::exception_ptr cause);
  std::exception_ptr error() const;
  /// Why nothing can be started: broken, or shut down; null while all is well.
  std::exception_ptr unusable_error() const;

  /// Has a task run on the worker thread, which is started at the first one.
  void post_to_worker(Task task);
  /// An operation is over: wakes this rank's own sleepers.
  void notify_self() noexcept;
  /// Asks the progress thread to see to what is pending.
  void wake_progress_thread();

 private:
  class LaneOp;
  class FailedOp;
  struct Lane {
    std::mutex mutex;
    std::deque<std::shared_ptr<LocalOp>> queue;
    std::atomic<std::uint64_t> submitted = 0;  ///< operations so far; grows under the mutex
    std::atomic<std::uint64_t> completed = 0;  ///< those that are over; grows under the claim
    DriverLock driver_lock;
    std::shared_ptr<LocalOp> current;  ///< the one that is stepped; not in the queue
    std::uint64_t rounds = 0;
    LaneScratch scratch;

    bool idle() const noexcept {
      const std::uint64_t completed_count =
          completed.load(std::memory_order_acquire);  // first: there are never more of them
      return submitted.load(std::memory_order_seq_cst) == completed_count;
    }
  };

  template <class Over>
  void drive_until(Over done, Clock::time_point deadline);
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
  std::atomic<SpinDecision> spin_decision_ = SpinDecision::unknown;  ///< known once all ranks are there
  Mailboxes mailboxes_;
  DriverLock mailboxes_lock_;

  mutable std::mutex state_mutex_;
  std::exception_ptr error_;
  bool closed_ = false;
  std::atomic<bool> is_unusable_ = false;  ///< broken or closed, for a look without the mutex

  std::mutex progress_mutex_;
  std::condition_variable progress_wake_;
  bool progress_requested_ = false;              ///< somebody asked for it: now, not at the next look
  std::atomic<bool> operation_started_ = false;  ///< an operation was started since the last look
  std::atomic<bool> progress_asleep_ = false;    ///< until it is woken
  std::atomic<bool> stopping_ = false;
  std::atomic<int> waiting_threads_ = 0;
  std::thread progress_thread_;

  std::mutex worker_mutex_;
  std::unique_ptr<ThreadExecutor> worker_;

  std::shared_ptr<LocalContext> leaked_self_;  ///< in a forked child, which never lets go of it
};

}  // namespace hookline::local
