// What whoever runs hooks on buckets decides: the lane of each, when it starts, whether its result will do, and who
// else has to hear of a failure.
#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <hookline/hook/comm_hook.hpp>

namespace hookline::hook {

/// Starts hooks in bucket order, each when its lane is free, outside the lock, by one thread at a time. The owner's
/// mutex guards it.
class Launcher {
 public:
  explicit Launcher(int lanes);

  int lanes() const noexcept { return static_cast<int>(busy_.size()); }
  /// The lane of a bucket: lane 0 is the user's where there are others, and hooks that block share one.
  int lane_of(const CommHookInterface& hook, std::size_t bucket) const;
  bool busy(int lane) const { return busy_[static_cast<std::size_t>(lane)]; }
  void set_busy(int lane, bool busy) { busy_[static_cast<std::size_t>(lane)] = busy; }

  /// For whoever brings a bucket or ends a hook. One of them launches; what the others brought it finds when it looks
  /// again, under the same lock under which it would have stopped. `take` gives the next bucket whose lane is free, as
  /// something to be dereferenced, and runs under the mutex; `start` does not.
  template <class Take, class Start>
  void launch(std::mutex& mutex, Take take, Start start) {
    std::unique_lock lock(mutex);
    if (launching_) return;
    launching_ = true;
    while (const auto next = take()) {
      lock.unlock();
      start(*next);
      lock.lock();
    }
    launching_ = false;
  }

 private:
  std::vector<bool> busy_;  ///< by lane
  bool launching_ = false;
};

[[noreturn]] void refuse_result(const std::string& where, const Tensor& buffer, const Tensor& result);

/// InvalidArgument where a hook's result is not flat, of the size and dtype of the buffer that it got. `where()`,
/// called only then, names bucket and hook.
template <class Where>
void check_result(const Where& where, const Tensor& buffer, const Tensor& result) {
  if (result.shape() != buffer.shape() || result.dtype() != buffer.dtype()) refuse_result(where(), buffer, result);
}

/// Whether all ranks learn of such an error by themselves.
bool comes_from_the_group(const std::exception_ptr& error);

}  // namespace hookline::hook
