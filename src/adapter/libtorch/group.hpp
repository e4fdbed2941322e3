// Any process group of torch.distributed as a process group of this library.
#pragma once

#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <hookline/group/process_group.hpp>

namespace hookline::libtorch {

/// It has no lanes: operations are matched in the order in which they are started. What torch's backend of the group
/// lacks is Unsupported, except that means and scaled sums are made of sums.
class TorchGroup final : public ProcessGroup {
 public:
  /// `owner` is kept as long as this: the Python object of a group that is a Python class.
  explicit TorchGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<void> owner = nullptr);
  ~TorchGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string backend_name() const override { return name_; }
  std::string group_name() const override;
  WorkPtr run(Collective collective) override;
  std::uint64_t sequence_number() const override { return sequence_.load(); }
  void abort(const std::string& cause) override;
  void set_timeout(Milliseconds timeout) override;

 private:
  c10::intrusive_ptr<c10d::Work> call(const Collective& c);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<void> owner_;
  const int rank_;
  const int size_;
  const std::string name_;
  std::atomic<std::uint64_t> sequence_ = 0;
};

}  // namespace hookline::libtorch
