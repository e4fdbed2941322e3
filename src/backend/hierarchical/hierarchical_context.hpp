// One rank's end of a hierarchical group: the lanes' queues and threads, and failure handling.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "backend/hierarchical/hierarchical_work.hpp"
#include "backend/hierarchical/scratch.hpp"
#include "backend/hierarchical/sub_backends.hpp"

namespace hookline::hierarchical {

/// Each lane has a thread, started at its first operation, that runs the lane's operations one after another and blocks
/// in the works of the sub-backends. Invariant: only the lane's thread uses that lane of the sub-backends, so they see
/// the operations of a lane in the same order on every rank.
class HierarchicalContext : public std::enable_shared_from_this<HierarchicalContext> {
 public:
  explicit HierarchicalContext(SubBackends sub_backends);
  HierarchicalContext(const HierarchicalContext&) = delete;
  HierarchicalContext& operator=(const HierarchicalContext&) = delete;
  ~HierarchicalContext();

  const SubBackends& sub_backends() const noexcept { return sub_backends_; }
  int lanes() const noexcept { return lane_count_; }

  WorkPtr start(Operation&& operation, int lane, Milliseconds timeout);
  /// Throws InvalidArgument if this process is a forked child of the process that created the group.
  void refuse_in_forked_child(std::string_view call) const;
  /// Fails all pending and future operations, here and in the sub-backends. The first cause is kept.
  void fail(const std::exception_ptr& cause);
  std::exception_ptr error() const;
  /// Leaves the group: fails pending operations and joins the threads. Does not wait for a peer.
  void close() noexcept;

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<HierarchicalWork>> queue;
    std::thread thread;
    bool stopping = false;
    std::uint64_t sequence = 0;
    Scratch scratch;
  };

  void run_lane(std::size_t index);
  std::exception_ptr run(const HierarchicalWork& work, std::size_t index);
  /// Returns why no operation can start (failed or closed), or null.
  std::exception_ptr unusable_error();

  const SubBackends sub_backends_;
  const int lane_count_;
  const std::uint64_t fork_generation_;
  const std::shared_ptr<ThreadExecutor> worker_;
  std::array<Lane, Capabilities::kMaxLanes> lanes_;
  mutable std::mutex state_mutex_;
  std::exception_ptr error_;
  bool closed_ = false;
  std::shared_ptr<HierarchicalContext> leaked_self_;  ///< leaks this object in a forked child
};

}  // namespace hookline::hierarchical
