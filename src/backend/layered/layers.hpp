// The lanes of a layered group: a queue and a thread each, and what happens when a part of the group fails.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "backend/layered/levels.hpp"
#include "backend/layered/operation.hpp"
#include "backend/layered/scratch.hpp"

namespace hookline::layered {

/// A lane's thread is started at its first operation and runs its operations one after another, blocking in the parts'
/// works: what the parts do side by side is theirs to say, and the steps of an operation read as they happen. The parts
/// see the operations of a lane in one order on every rank, since nothing but the lane's thread uses that lane of them.
class Layers : public std::enable_shared_from_this<Layers> {
 public:
  explicit Layers(Levels levels);
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;
  ~Layers();

  const Levels& levels() const noexcept { return levels_; }
  int lanes() const noexcept { return lane_count_; }

  WorkPtr start(Collective&& collective, int lane, Milliseconds timeout);
  /// Throws InvalidArgument where this process is a forked child of the one that made the group.
  void refuse_in_forked_child(std::string_view what) const;
  /// Fails everything, now and later, here and in the parts. The first cause stays.
  void fail(const std::exception_ptr& cause);
  std::exception_ptr broken() const;
  /// Leaves the group: fails what is pending, joins the threads. Does not wait for a peer.
  void close() noexcept;

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Operation>> queue;
    std::thread thread;
    bool stopping = false;
    std::uint64_t number = 0;
    Scratch scratch;
  };

  void run_lane(std::size_t index);
  std::exception_ptr run(const Operation& operation, std::size_t index);
  /// Why nothing can be started: broken, or closed; null while all is well.
  std::exception_ptr why_unusable();

  const Levels levels_;
  const int lane_count_;
  const std::uint64_t fork_generation_;
  const std::shared_ptr<ThreadExecutor> worker_;
  std::array<Lane, Capabilities::kMostLanes> lanes_;
  mutable std::mutex state_mutex_;
  std::exception_ptr broken_;
  bool closed_ = false;
  std::shared_ptr<Layers> itself_;  ///< in a forked child, which never lets go of it
};

}  // namespace hookline::layered
