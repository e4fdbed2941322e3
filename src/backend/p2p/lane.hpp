// A lane over a transport: tasks that run one after another, driven by a waiting thread or by the lane's own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <hookline/backend/transport.hpp>

namespace hookline::p2p {

class P2PContext;

/// A task of a lane: a state machine that suspends while it waits for a request.
class LaneTask {
 public:
  LaneTask() = default;
  LaneTask(const LaneTask&) = delete;
  LaneTask& operator=(const LaneTask&) = delete;
  virtual ~LaneTask() = default;

  /// Runs until the task must wait for a request; true at the end. A thrown Mismatch fails the task alone, any other
  /// exception fails the group.
  virtual bool step() = 0;
  /// Completes the task. Releases its requests first, so that no transport accesses the tensors afterwards.
  virtual void finish(std::exception_ptr error) = 0;
  virtual Clock::time_point task_deadline() const = 0;
  /// Returns the error for a task that has timed out.
  virtual std::exception_ptr timeout_error() = 0;
  /// Describes the task in error messages.
  virtual std::string description() const = 0;
  /// True if the task cannot complete because the message of a departed rank is missing.
  virtual bool is_missing(int) { return false; }
  /// True if a failure of the task fails the group.
  virtual bool fails_group() const { return true; }

 protected:
  /// True if the request has completed. Otherwise the task must suspend, and test the request again in its next step.
  bool test_request(const std::unique_ptr<Request>& request, int rank);

  int awaited_peer() const noexcept { return peer_; }
  /// Sets the peer to blame for the next exception.
  void set_peer(int rank) noexcept { peer_ = rank; }

 private:
  friend class Lane;
  Request* awaited_request_ = nullptr;
  int peer_ = -1;
  bool completed_ = false;
};

/// An ordered sequence of tasks. Any thread that waits for a task may drive the lane; otherwise the lane's own thread
/// does. There is one driver at a time.
class Lane {
 public:
  explicit Lane(P2PContext& context) : context_(context) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Queues a task. Calls `post` first, under the mutex and so in queue order; if it throws, nothing is queued. With
  /// `wake_thread` the lane's thread wakes at once; without it a caller has time to wait for the task and drive it.
  /// Returns false and does nothing if the group is unusable.
  bool push(const std::shared_ptr<LaneTask>& task, const std::function<void()>& post, bool wake_thread);
  /// Drives the lane until `done` returns true, or blocks while another thread drives it. `next_deadline` returns when
  /// all waits must evaluate their deadlines.
  void drive_until(const std::function<bool()>& done, const std::function<Clock::time_point()>& next_deadline);
  /// Wakes the lane's thread to drive queued tasks.
  void wake();
  /// Blocks until the queue is empty or Ctrl-C is pressed. The tasks' deadlines limit the wait.
  void flush() noexcept;
  /// Fails all queued tasks with the error of the unusable group. If the lane has a driver, the driver does it.
  void fail_pending();

  /// Ends the lane's thread.
  void stop() noexcept;

 private:
  void run(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done);
  bool advance(LaneTask& task, std::exception_ptr& error);
  std::exception_ptr diagnose(LaneTask& task, const std::exception_ptr& disconnect);
  Clock::time_point earliest_deadline();
  void fail_queue(std::unique_lock<std::mutex>& lock);
  void run_thread();

  P2PContext& context_;
  std::mutex mutex_;
  std::condition_variable changed_;      ///< a task completed, or the driver left
  std::condition_variable wake_thread_;  ///< wakes the lane's thread
  std::deque<std::shared_ptr<LaneTask>> queue_;
  Clock::time_point last_push_;  ///< time of the last push
  bool has_driver_ = false;
  bool wake_requested_ = false;
  bool thread_blocked_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hookline::p2p
