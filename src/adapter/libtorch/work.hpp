// A Hookline work as a c10d::Work.
#pragma once

#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <hookline/backend/work.hpp>

namespace hookline::libtorch {

/// Forwards to a Hookline work, and converts errors and outputs for torch.
class TorchWork final : public c10d::Work {
 public:
  TorchWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs, WorkPtr work,
            std::vector<at::Tensor> outputs);

  bool isCompleted() override { return work_->is_completed(); }
  bool isSuccess() const override { return work_->is_success(); }
  std::exception_ptr exception() const override;
  int sourceRank() const override { return work_->source_rank(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  /// The future completes on the CallbackPool, since its callbacks are user code.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return work_->sequence_number(); }

 private:
  const WorkPtr work_;
  const std::vector<at::Tensor> outputs_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace hookline::libtorch
