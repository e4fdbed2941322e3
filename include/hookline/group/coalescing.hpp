// Several operations as one: those that are started between two calls have one work in common.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include <hookline/backend/work.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// What a group that implements start_coalescing() and end_coalescing() keeps. Safe to use from any thread.
class HOOKLINE_EXPORT Coalescing {
 public:
  /// Between start() and end(): then every work that the group starts has to be given to add().
  bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  /// InvalidArgument where it was started before.
  void start();
  void add(const WorkPtr& work);
  /// The work of all that were added, done when all are; it fails with the error of the first of them that failed.
  /// InvalidArgument where it was not started.
  [[nodiscard]] WorkPtr end();

 private:
  std::atomic<bool> active_ = false;
  std::mutex mutex_;
  std::vector<WorkPtr> works_;
};

}  // namespace hookline
