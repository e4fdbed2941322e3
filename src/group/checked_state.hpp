// State shared by a checked group and its threads.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <hookline/core/deadline.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

/// A store connection of one thread, cloned at first use: a wait in the store must not block other threads.
class LazyStoreClone {
 public:
  explicit LazyStoreClone(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Store& operator*() {
    if (!std::exchange(cloned_, true)) {
      if (auto clone = store_->clone_for_waiting()) store_ = std::move(clone);
    }
    return *store_;
  }
  Store* operator->() { return &**this; }

 private:
  std::shared_ptr<Store> store_;
  bool cloned_ = false;
};

/// The inner group, the store and the first failure of a checked group. Shared ownership, because the group's threads
/// may briefly outlive it.
class CheckedState {
 public:
  CheckedState(std::shared_ptr<ProcessGroup> inner_group, std::shared_ptr<Store> shared_store);

  const std::shared_ptr<ProcessGroup> inner;
  const std::shared_ptr<Store> store;

  /// Ends all waits with `cause`; later calls fail with it, too. Only the first cause is kept; returns true if `cause`
  /// is the first. Precondition: the inner group is aborted, so no operation touches the tensors of a caller whose wait
  /// ended.
  bool close(std::exception_ptr cause);
  /// Closes after shutdown() or destruction on this rank.
  void close();
  /// Closes, and publishes the failure in the store so that ranks that wait there fail too. An abort of the inner group
  /// does not reach them.
  void abort_all(std::exception_ptr cause, const std::string& text);

  /// Throws the cause if closed.
  void throw_if_closed() const;
  /// Throws the cause if closed here or by another rank. Polls the store only after `next_poll`, which it then
  /// advances.
  void poll_abort(Clock::time_point& next_poll);

 private:
  mutable std::mutex mutex_;
  std::exception_ptr cause_;
  std::mutex abort_store_mutex_;
  LazyStoreClone abort_store_;
};

}  // namespace hookline::group
