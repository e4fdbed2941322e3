// Any torch.distributed process group as a Hookline process group.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <hookline/group/process_group.hpp>

#include "group/group_identity.hpp"

namespace hookline::libtorch {

class StagedCall;

/// Has no lanes: operations match in the order in which they start. An operation that torch's backend lacks
/// throws Unsupported, unless StagedCall can build it from others. The calls of the ranks are not compared
/// (with_collective_checks() adds that), and a failure on one rank is not reported to the others.
class TorchGroup final : public ProcessGroup, public group::ForwardingGroup {
 public:
  /// `owner` is kept alive: the Python object of a group implemented in Python.
  explicit TorchGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<void> owner = nullptr);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const void* target() const noexcept override { return group_.get(); }
  std::string backend_name() const override { return name_; }
  std::string group_name() const override;
  WorkPtr run(Operation operation) override;
  std::uint64_t sequence_number() const override { return sequence_.load(); }
  /// Fails all later operations of this rank. Pending operations fail if torch's backend supports abort; with Gloo, at
  /// their timeouts.
  void abort(const std::string& cause) override;
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  /// Returns the timeout of torch's backend, if it has one.
  Milliseconds timeout() const override;
  void set_timeout(Milliseconds timeout) override;

 private:
  c10::intrusive_ptr<c10d::Work> start(StagedCall& call);
  std::exception_ptr error() const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<void> owner_;
  const int rank_;
  const int size_;
  const std::string name_;
  std::atomic<std::uint64_t> sequence_ = 0;
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace hookline::libtorch
