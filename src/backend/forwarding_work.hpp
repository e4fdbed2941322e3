// ForwardingWork: the base of works that wrap another work.
#pragma once

#include <utility>

#include <hookline/backend/work.hpp>

namespace hookline::backend {

/// Forwards every call to the inner work. Subclasses override what they change.
class ForwardingWork : public Work {
 public:
  explicit ForwardingWork(WorkPtr inner) : inner_(std::move(inner)) {}

  void wait(std::optional<Milliseconds> timeout) override { inner_->wait(timeout); }
  Future<std::vector<Tensor>> get_future() override { return inner_->get_future(); }
  bool is_completed() override { return inner_->is_completed(); }
  std::exception_ptr exception() override { return inner_->exception(); }
  std::vector<Tensor> result() override { return inner_->result(); }
  OpType op_type() const override { return inner_->op_type(); }
  std::uint64_t sequence_number() const override { return inner_->sequence_number(); }
  int source_rank() const override { return inner_->source_rank(); }
  Clock::time_point time_started() const override { return inner_->time_started(); }
  Clock::time_point time_finished() const override { return inner_->time_finished(); }

 protected:
  const WorkPtr inner_;
};

}  // namespace hookline::backend
