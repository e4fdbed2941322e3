// A lane on an engine: scripts that run one after another, driven by whoever waits or by a thread of the lane's own.
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

/// What a lane runs: steps between which a message is waited for.
class Script {
 public:
  Script() = default;
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  virtual ~Script() = default;

  /// Runs to the next message that must be waited for; true at the end. Throws what it fails with: a Mismatch ends
  /// the script alone, anything else the group.
  virtual bool step() = 0;
  /// Ends it: lets go of its messages first, so that nobody touches the tensors afterwards.
  virtual void finish(std::exception_ptr error) = 0;
  virtual Clock::time_point until() const = 0;
  /// The error for one whose time is up.
  virtual std::exception_ptr time_up() = 0;
  /// What it is, for the error about a peer that was lost meanwhile.
  virtual std::string what() const = 0;
  /// Whether it cannot end because a rank that has left the group did not do its part before.
  virtual bool lacks(int) { return false; }
  /// Whether the group is broken where it fails.
  virtual bool counts() const { return true; }

 protected:
  /// Whether a message is through; where not, the script must suspend, and ask again when it is stepped next.
  bool through(const std::unique_ptr<Message>& message, int rank);

  int awaited_rank() const noexcept { return rank_; }
  /// The peer that is to blame for what is thrown next.
  void turn_to(int rank) noexcept { rank_ = rank; }

 private:
  friend class Lane;
  Message* awaited_ = nullptr;
  int rank_ = -1;
  bool arrived_ = false;
};

class Lane {
 public:
  explicit Lane(Station& station) : station_(station) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Queues a script. `begin` is called first, in the order of the queue, and may throw: nothing is queued then. Who
  /// does not `hurry` gives somebody time to come and drive it. False, with nothing done, where the group is unusable.
  bool push(const std::shared_ptr<Script>& script, const std::function<void()>& begin, bool hurry);
  /// Drives until `over` says so, or waits while somebody else drives; `until` is when to have all look at deadlines.
  void drive_until(const std::function<bool()>& over, const std::function<Clock::time_point()>& until);
  /// Has the thread of the lane see to what is queued.
  void hurry();
  /// Returns when nothing is queued any more, or Ctrl-C came. How long that may take is up to the scripts.
  void flush() noexcept;
  /// Ends all that is queued with why the group is unusable. Where somebody drives, that one does.
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
  std::condition_variable changed_;  ///< something is over, or nobody drives any more
  std::condition_variable wake_;     ///< of the thread
  std::deque<std::shared_ptr<Script>> queue_;
  Clock::time_point pushed_;  ///< when the last one was
  bool driven_ = false;
  bool hurry_ = false;
  bool asleep_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hookline::engine
