// A lane over a transport: tasks that run one after another, driven by a waiting thread or by the lane's own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <hookline/backend/engine.hpp>

namespace hookline::engine {

class Station;

/// A task of a lane: a state machine that suspends while it waits for a request.
class Script {
 public:
  Script() = default;
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  virtual ~Script() = default;

  /// Runs until the task must wait for a request; true at the end. A thrown Mismatch fails the task alone, any other
  /// exception fails the group.
  virtual bool step() = 0;
  /// Completes the task. Releases its requests first, so that no transport accesses the tensors afterwards.
  virtual void finish(std::exception_ptr error) = 0;
  virtual Clock::time_point until() const = 0;
  /// Returns the error for a task that has timed out.
  virtual std::exception_ptr time_up() = 0;
  /// Describes the task in error messages.
  virtual std::string what() const = 0;
  /// True if the task cannot complete because the message of a departed rank is missing.
  virtual bool lacks(int) { return false; }
  /// True if a failure of the task fails the group.
  virtual bool counts() const { return true; }

 protected:
  /// True if the request has completed. Otherwise the task must suspend, and test the request again in its next step.
  bool through(const std::unique_ptr<Message>& message, int rank);

  int awaited_rank() const noexcept { return rank_; }
  /// Sets the peer to blame for the next exception.
  void turn_to(int rank) noexcept { rank_ = rank; }

 private:
  friend class Lane;
  Message* awaited_ = nullptr;
  int rank_ = -1;
  bool arrived_ = false;
};

/// An ordered sequence of tasks. Any thread that waits for a task may drive the lane; otherwise the lane's own thread
/// does. There is one driver at a time.
class Lane {
 public:
  explicit Lane(Station& station) : station_(station) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Queues a task. Calls `begin` first, under the mutex and so in queue order; if it throws, nothing is queued. With
  /// `hurry` the lane's thread wakes at once; without it a caller has time to wait for the task and drive it. Returns
  /// false, without an effect, if the group is unusable.
  bool push(const std::shared_ptr<Script>& script, const std::function<void()>& begin, bool hurry);
  /// Drives the lane until `over` returns true, or blocks while another thread drives it. `until` returns when all
  /// waits must evaluate their deadlines.
  void drive_until(const std::function<bool()>& over, const std::function<Clock::time_point()>& until);
  /// Wakes the lane's thread to drive queued tasks.
  void hurry();
  /// Blocks until the queue is empty or Ctrl-C is pressed. The tasks' deadlines limit the wait.
  void flush() noexcept;
  /// Fails all queued tasks with the error of the unusable group. If the lane has a driver, the driver does it.
  void end_all();

  /// Ends the thread.
  void stop() noexcept;

 private:
  void run(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over);
  bool advance(Script& script, std::exception_ptr& error);
  std::exception_ptr explain(Script& script, const std::exception_ptr& lost);
  Clock::time_point earliest();
  void drain(std::unique_lock<std::mutex>& lock);
  void run_thread();

  Station& station_;
  std::mutex mutex_;
  std::condition_variable changed_;  ///< a task completed, or the driver left
  std::condition_variable wake_;     ///< wakes the lane's thread
  std::deque<std::shared_ptr<Script>> queue_;
  Clock::time_point pushed_;  ///< time of the last push
  bool driven_ = false;
  bool hurry_ = false;
  bool asleep_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hookline::engine
