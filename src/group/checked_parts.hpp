// What a checked group and the threads that compare for it have in common.
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

/// A thread's own way to a store, made at its first use: while it waits there, other threads have to go on.
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

/// The threads may outlive the group by a moment.
class CheckedParts {
 public:
  CheckedParts(std::shared_ptr<ProcessGroup> inner, std::shared_ptr<Store> shared);

  const std::shared_ptr<ProcessGroup> group;  ///< the one inside
  const std::shared_ptr<Store> store;

  /// Nobody waits any longer, and who comes gets the cause; the first one counts. True where this was it. The group
  /// inside has been aborted by then, so that nobody touches the tensors of those who stop waiting.
  bool close(std::exception_ptr cause);
  /// The group was shut down or destroyed here.
  void close();
  /// Closes it and tells the other ranks, who wait in the store where the group inside cannot tell them.
  void give_up(std::exception_ptr cause, const std::string& text);

  /// Throws the cause where the group is closed.
  void check() const;
  /// The same, and closes it where another rank has given up. Asks the store where `next` has come, and puts it off.
  void check_all(Clock::time_point& next);

 private:
  mutable std::mutex mutex_;
  std::exception_ptr cause_;
  std::mutex way_mutex_;
  OwnWay way_;
};

}  // namespace hookline::group
