// BucketScheduler: lanes and launch order of hooks, and checks of their results.
#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <hookline/hook/comm_hook.hpp>

namespace hookline::hook {

/// Starts hooks in bucket order, each when its lane is free, outside the lock, on one thread at a time. The owner's
/// mutex guards all members.
class BucketScheduler {
 public:
  explicit BucketScheduler(int lanes);

  int lanes() const noexcept { return static_cast<int>(busy_.size()); }
  /// Returns the lane of a bucket. Lane 0 is reserved for the user if there are others; blocking hooks share lane 1.
  int lane_of(const CommHookInterface& hook, std::size_t bucket) const;
  bool busy(int lane) const { return busy_[static_cast<std::size_t>(lane)]; }
  void set_busy(int lane, bool busy) { busy_[static_cast<std::size_t>(lane)] = busy; }

  /// Called by each thread that completes a bucket or a hook. Single-launcher pattern: one thread launches, others
  /// return. No wakeup is lost, because the launcher checks for more work and gives up the role under the same lock.
  /// `next_bucket` runs under the mutex and returns the next bucket whose lane is free, as an optional; `start_hook`
  /// runs without it.
  template <class Take, class Start>
  void launch(std::mutex& mutex, Take next_bucket, Start start_hook) {
    std::unique_lock lock(mutex);
    if (launching_) return;
    launching_ = true;
    while (const auto next = next_bucket()) {
      lock.unlock();
      start_hook(*next);
      lock.lock();
    }
    launching_ = false;
  }

 private:
  std::vector<bool> busy_;  ///< by lane
  bool launching_ = false;
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
