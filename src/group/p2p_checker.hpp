// P2PChecker: starts sends and receives after both ranks have called them with the same signature.
#pragma once

#include <atomic>
#include <memory>

#include <hookline/core/executor.hpp>
#include <hookline/core/future.hpp>

#include "group/checked_state.hpp"

namespace hookline::group {

/// The sends and receives of one rank. They match as in the group: by sender, receiver, tag and order.
///
/// Protocol: the first rank stores its signature under the key of the message with compare_set. The second rank finds
/// it, compares, and stores its own signature as the answer, which the first rank polls. Both ranks then know both
/// calls.
class P2PChecker {
 public:
  explicit P2PChecker(std::shared_ptr<CheckedState> state);
  P2PChecker(const P2PChecker&) = delete;
  P2PChecker& operator=(const P2PChecker&) = delete;
  /// Fails all pending operations. Precondition: the state is closed.
  ~P2PChecker();

  /// Starts a send or receive once the peer has called its counterpart. Fails with Mismatch listing both calls, or with
  /// Timeout listing unmatched calls of the peer; a timeout aborts the group. `source_rank` is set to the sender when
  /// it is known.
  Future<std::vector<Tensor>> post(Operation operation, Clock::time_point deadline,
                                   std::shared_ptr<std::atomic<int>> source_rank);

 private:
  class Queue;
  const std::shared_ptr<Queue> queue_;
  ThreadExecutor thread_;
};

}  // namespace hookline::group
