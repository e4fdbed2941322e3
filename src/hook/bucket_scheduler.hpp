// BucketScheduler: the launch order of all buckets on a process group, and checks of hooks' results.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <hookline/backend/backend.hpp>
#include <hookline/core/deadline.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline::hook {

/// Returns the number of lanes of a group, within the limits of the library.
int lane_count(const ProcessGroup& group);
/// Returns the lane of a bucket on a group with `lanes` lanes. Lane 0 is reserved for the user if there are others;
/// blocking hooks share lane 1.
int lane_of(int lanes, const CommHookInterface& hook, std::size_t bucket);

/// A queue of buckets, shared by all reducers and DDP hooks on a process group. Ranks that enqueue in the same order
/// launch in the same order, whenever their hooks complete.
///
/// States of an entry:
/// - queued: by enqueue(). An owner calls it in bucket order, under its own mutex.
/// - launched: by the one thread that runs launch(), in queue order, once the lane is free. An exclusive entry then
///   occupies its lane.
/// - done: by the owner, on any thread. It calls release() for an exclusive entry, also after an error.
///
/// Thread-safe. The scheduler's mutex may be locked under an owner's mutex, never the other way round: `start` runs
/// without locks. The scheduler does not own the group; a queued entry owns what its `start` captures.
class BucketScheduler {
 public:
  struct Entry {
    const void* owner;  ///< the reducer or DDP hook; identifies the occupant of a lane
    int lane;
    bool exclusive;  ///< occupies the lane until release(); others, such as plain allreduces, may queue in the lane
    Task start;      ///< must not throw; may block if the hook does
  };

  /// Returns the scheduler of a group and all its wrappers. The caller keeps the group alive longer.
  static std::shared_ptr<BucketScheduler> of(const ProcessGroup& group);

  void enqueue(Entry entry);
  /// Launches what can be launched. Called after enqueue() and release(), without locks. Single-launcher pattern: one
  /// thread launches, others return. No wakeup is lost, because the launcher checks for more work and gives up the role
  /// under the same lock.
  void launch();
  /// Frees a lane if an entry of `owner` occupies it.
  void release(const void* owner, int lane);
  /// Frees all lanes of an owner that has failed while its hooks still run, so that they do not block other owners.
  void abandon(const void* owner);

  /// Returns the number of launches and releases so far, to detect a queue that does not move.
  std::uint64_t progress() const noexcept { return progress_.load(std::memory_order_relaxed); }

 private:
  std::optional<Entry> next();

  std::mutex mutex_;  ///< guards what follows
  std::deque<Entry> queue_;
  std::array<const void*, Capabilities::kMaxLanes> occupants_{};  ///< owner of the exclusive entry, by lane
  bool launching_ = false;
  std::atomic<std::uint64_t> progress_ = 0;
};

/// Measures how long a scheduler has made no progress.
class StallTimer {
 public:
  StallTimer(const BucketScheduler& scheduler, Milliseconds limit)
      : scheduler_(scheduler), limit_(limit), seen_(scheduler.progress()) {}
  bool expired() {
    if (const std::uint64_t now = scheduler_.progress(); now != seen_) {
      seen_ = now;
      since_ = Clock::now();
    }
    return Clock::now() >= since_ + limit_;
  }

 private:
  const BucketScheduler& scheduler_;
  const Milliseconds limit_;
  std::uint64_t seen_;
  Clock::time_point since_ = Clock::now();
};

[[noreturn]] void throw_bad_result(const std::string& label, const Tensor& buffer, const Tensor& result);

/// Throws InvalidArgument if a hook's result differs from its buffer in shape or dtype. The message begins with
/// `label()`, the names of bucket and hook; it is not called on success.
template <class Label>
void check_result(const Label& label, const Tensor& buffer, const Tensor& result) {
  if (result.shape() != buffer.shape() || result.dtype() != buffer.dtype()) throw_bad_result(label(), buffer, result);
}

/// True for errors that the group reports on all ranks: Mismatch, Aborted, PeerLost and Timeout.
bool is_group_error(const std::exception_ptr& error);

}  // namespace hookline::hook
