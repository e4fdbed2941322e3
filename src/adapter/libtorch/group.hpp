// Any process group of torch.distributed as a process group of this library.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <hookline/group/process_group.hpp>

namespace hookline::libtorch {

class StagedCall;

/// It has no lanes: operations are matched in the order in which they are started. What torch's backend of the group
/// lacks is Unsupported, except for what StagedCall makes of what all of them have. Ranks' calls are not compared, and
/// no rank is told of another that fails: `checked` around it does the first.
class TorchGroup final : public ProcessGroup {
 public:
  /// `owner` is kept as long as this: the Python object of a group that is a Python class.
  explicit TorchGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<void> owner = nullptr);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string backend_name() const override { return name_; }
  std::string group_name() const override;
  WorkPtr run(Collective collective) override;
  std::uint64_t sequence_number() const override { return sequence_.load(); }
  /// Nothing more can be started on this rank. What is under way fails where torch's backend knows how to abort; with
  /// Gloo at its timeout.
  void abort(const std::string& cause) override;
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  /// That of torch's backend, where it tells.
  Milliseconds timeout() const override;
  void set_timeout(Milliseconds timeout) override;

 private:
  c10::intrusive_ptr<c10d::Work> start(StagedCall& call);
  std::exception_ptr broken() const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<void> owner_;
  const int rank_;
  const int size_;
  const std::string name_;
  std::atomic<std::uint64_t> sequence_ = 0;
  mutable std::mutex mutex_;
  std::exception_ptr broken_;
};

}  // namespace hookline::libtorch
