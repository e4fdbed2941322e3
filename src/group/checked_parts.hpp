// What a checked group and the threads that compare for it have in common.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

/// The threads may outlive the group by a moment.
struct CheckedParts {
  std::shared_ptr<ProcessGroup> group;  ///< the one inside
  std::shared_ptr<Store> store;
  std::atomic<bool> closing = false;  ///< the group was shut down or aborted: nobody waits any longer
};

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

}  // namespace hookline::group
