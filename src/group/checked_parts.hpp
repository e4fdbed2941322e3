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
class OwnWay {
 public:
  explicit OwnWay(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Store& operator*() {
    if (!std::exchange(made_, true)) {
      if (auto own = store_->clone_for_waiting()) store_ = std::move(own);
    }
    return *store_;
  }
  Store* operator->() { return &**this; }

 private:
  std::shared_ptr<Store> store_;
  bool made_ = false;
};

/// Shared ownership: the threads may briefly outlive the group.
class CheckedParts {
 public:
  CheckedParts(std::shared_ptr<ProcessGroup> inner, std::shared_ptr<Store> shared);

  const std::shared_ptr<ProcessGroup> group;
  const std::shared_ptr<Store> store;

  /// Ends all waits with `cause`; later calls fail with it, too. Only the first cause is kept; returns true if this was
  /// it. Precondition: the inner group is aborted, so no operation touches the tensors of a caller whose wait ended.
  bool close(std::exception_ptr cause);
  /// Closes after shutdown() or destruction on this rank.
  void close();
  /// Closes and publishes the failure in the store: ranks that wait there are not reached by an abort of the inner
  /// group.
  void give_up(std::exception_ptr cause, const std::string& text);

  /// Throws the cause if closed.
  void check() const;
  /// Throws the cause if closed here or by another rank. Polls the store only after `next_poll`, which it then
  /// advances.
  void check_all(Clock::time_point& next);

 private:
  mutable std::mutex mutex_;
  std::exception_ptr cause_;
  std::mutex way_mutex_;
  OwnWay way_;
};

}  // namespace hookline::group
