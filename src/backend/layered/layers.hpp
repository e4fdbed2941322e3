// One rank's end of a hierarchical group: the lanes' queues and threads, and failure handling.
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

/// Each lane has a thread, started at its first operation, that runs the lane's operations one after another and blocks
/// in the works of the sub-backends. Invariant: only the lane's thread uses that lane of the sub-backends, so they see
/// the operations of a lane in the same order on every rank.
class Layers : public std::enable_shared_from_this<Layers> {
 public:
  explicit Layers(Levels levels);
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;
  ~Layers();

  const Levels& levels() const noexcept { return levels_; }
  int lanes() const noexcept { return lane_count_; }

  WorkPtr start(Collective&& collective, int lane, Milliseconds timeout);
  /// Throws InvalidArgument if this process is a forked child of the process that created the group.
  void refuse_in_forked_child(std::string_view what) const;
  /// Fails all pending and future operations, here and in the sub-backends. The first cause is kept.
  void fail(const std::exception_ptr& cause);
  std::exception_ptr broken() const;
  /// Leaves the group: fails pending operations and joins the threads. Does not wait for a peer.
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
  /// Returns why no operation can start (failed or closed), or null.
  std::exception_ptr why_unusable();

  const Levels levels_;
  const int lane_count_;
  const std::uint64_t fork_generation_;
  const std::shared_ptr<ThreadExecutor> worker_;
  std::array<Lane, Capabilities::kMostLanes> lanes_;
  mutable std::mutex state_mutex_;
  std::exception_ptr broken_;
  bool closed_ = false;
  std::shared_ptr<Layers> itself_;  ///< leaks this object in a forked child
};

}  // namespace hookline::layered
