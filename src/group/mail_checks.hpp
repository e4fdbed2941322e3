// P2PChecker: starts sends and receives after both ranks have called them with the same signature.
#pragma once

#include <atomic>
#include <memory>

#include <hookline/core/executor.hpp>
#include <hookline/core/future.hpp>

#include "group/checked_parts.hpp"

namespace hookline::group {

/// The sends and receives of one rank. They match as in the group: by sender, receiver, tag and order.
///
/// Protocol: the first rank stores its signature under the key of the message with compare_set. The second rank finds
/// it, compares, and stores its own signature as the answer, which the first rank polls. Both ranks then know both
/// calls.
class MailChecks {
 public:
  explicit MailChecks(std::shared_ptr<CheckedParts> parts);
  MailChecks(const MailChecks&) = delete;
  MailChecks& operator=(const MailChecks&) = delete;
  /// Fails all pending operations. Precondition: the state is closed.
  ~MailChecks();

  /// Starts a send or receive once the peer has called its counterpart. Fails with Mismatch listing both calls, or with
  /// Timeout listing unmatched calls of the peer; a timeout aborts the group. `source_rank` is set to the sender when
  /// it is known.
  Future<std::vector<Tensor>> post(Collective collective, Clock::time_point deadline,
                                   std::shared_ptr<std::atomic<int>> source);

 private:
  class Desk;
  const std::shared_ptr<Desk> desk_;
  ThreadExecutor thread_;
};

}  // namespace hookline::group
