// Sends and receives that start once both ends have been found, through a store, to have called them.
#pragma once

#include <atomic>
#include <memory>

#include <hookline/core/executor.hpp>
#include <hookline/core/future.hpp>

#include "group/checked_parts.hpp"

namespace hookline::group {

/// The letters of one rank. They are matched as the group itself does it: by sender, receiver, tag and order.
///
/// Whoever comes first leaves its call under a key of that letter. The other finds it there, compares, and leaves its
/// own call as the answer, for which the first one looks now and then. So both know both calls.
class MailChecks {
 public:
  explicit MailChecks(std::shared_ptr<CheckedParts> parts);
  MailChecks(const MailChecks&) = delete;
  MailChecks& operator=(const MailChecks&) = delete;
  /// Fails what is under way. The group is closed by then.
  ~MailChecks();

  /// Starts a send or receive when the other end has called it. It fails with Mismatch, with both calls; or with
  /// Timeout, which tells what else the other end has called, after which the group is aborted. `source` is set to the
  /// sender of a letter once that is known.
  Future<std::vector<Tensor>> post(Collective collective, Clock::time_point deadline,
                                   std::shared_ptr<std::atomic<int>> source);

 private:
  class Desk;
  const std::shared_ptr<Desk> desk_;
  ThreadExecutor thread_;
};

}  // namespace hookline::group
