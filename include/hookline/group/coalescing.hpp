// Coalescing: operations started between two calls share one Work.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include <hookline/backend/work.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// The state behind start_coalescing() and end_coalescing() of a group. Thread-safe.
class HOOKLINE_EXPORT Coalescing {
 public:
  /// True between start() and end(). The group then passes every Work that it starts to add().
  bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  /// Throws InvalidArgument if coalescing is already active.
  void start();
  void add(const WorkPtr& work);
  /// Returns a Work that completes when all added works have. It fails with the first error in the order of add().
  /// Throws InvalidArgument if coalescing is not active.
  [[nodiscard]] WorkPtr end();

 private:
  std::atomic<bool> active_ = false;
  std::mutex mutex_;
  std::vector<WorkPtr> works_;
};

}  // namespace hookline
