// The group that runs each operation on two groups and compares the outputs.
#include <hookline/group/cross_check.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/coalescing.hpp>
#include <hookline/group/decorator.hpp>

#include "backend/forwarding_work.hpp"
#include "group/abort_quietly.hpp"

namespace hookline {
namespace {

/// False if the outputs are unspecified and must not be compared: reduce on ranks other than the root.
bool defines_outputs(const Operation& c, int rank) { return c.type != OpType::reduce || c.root == rank; }

class CrossCheckWork final : public backend::ForwardingWork {
 public:
  CrossCheckWork(WorkPtr first, WorkPtr other, std::vector<Tensor> other_outputs, std::string label, double tolerance)
      : ForwardingWork(std::move(first)),
        other_(std::move(other)),
        other_outputs_(std::move(other_outputs)),
        label_(std::move(label)),
        tolerance_(tolerance) {}

  void wait(std::optional<Milliseconds> timeout) override {
    const auto deadline = timeout ? deadline_after(*timeout) : Clock::time_point::max();
    const auto remaining = [&] { return timeout ? std::optional(time_left(deadline)) : std::nullopt; };
    inner_->wait(remaining());
    other_->wait(remaining());
    compare();
    if (error_) std::rethrow_exception(error_);
  }
  Future<std::vector<Tensor>> get_future() override {
    const auto self = std::static_pointer_cast<CrossCheckWork>(shared_from_this());
    return when_all(std::vector{inner_->get_future(), other_->get_future()})
        .then([self](const Future<std::vector<std::vector<Tensor>>>& both) {
          both.value();
          self->compare();
          if (self->error_) std::rethrow_exception(self->error_);
          return self->inner_->result();
        });
  }
  bool is_completed() override {
    const bool one = inner_->is_completed();
    return other_->is_completed() && one;
  }
  std::exception_ptr exception() override {
    if (!is_completed()) return nullptr;
    if (auto error = inner_->exception()) return error;
    if (auto error = other_->exception()) return error;
    compare();
    return error_;
  }
  Clock::time_point time_finished() const override {
    return std::max(inner_->time_finished(), other_->time_finished());
  }

 private:
  /// Compares only once, before wait() returns: afterwards the caller may change the tensors.
  void compare() {
    std::call_once(compare_once_, [&] {
      const std::vector<Tensor> outputs = inner_->result();
      for (std::size_t i = 0; i < other_outputs_.size(); ++i) {
        const Tensor a = outputs[i].contiguous().flatten();
        const Tensor b = other_outputs_[i].contiguous().flatten();
        if (std::memcmp(a.bytes(), b.bytes(), a.nbytes()) == 0) continue;
        for (std::int64_t e = 0; e < a.numel() && !error_; ++e) compare(i, e, a, b);
        if (error_) return;
      }
    });
  }
  void compare(std::size_t tensor, std::int64_t element, const Tensor& a, const Tensor& b) {
    const std::size_t offset = static_cast<std::size_t>(element) * a.itemsize();
    if (std::memcmp(a.bytes() + offset, b.bytes() + offset, a.itemsize()) == 0) return;
    const auto x = a.slice(0, element, element + 1).item<double>();
    const auto y = b.slice(0, element, element + 1).item<double>();
    const bool finite = std::isfinite(x) && std::isfinite(y);
    const bool within_tolerance = (std::isnan(x) && std::isnan(y)) ||
                                  (finite && std::abs(x - y) <= tolerance_ * std::max(std::abs(x), std::abs(y)));
    if (tolerance_ > 0 && within_tolerance) return;
    error_ = std::make_exception_ptr(
        Error(fmt::format("{}: tensor {}, {}, element {}: {} and {}", label_, tensor, to_string(a), element, x, y)));
  }

  const WorkPtr other_;
  const std::vector<Tensor> other_outputs_;
  const std::string label_;
  const double tolerance_;
  std::once_flag compare_once_;
  std::exception_ptr error_;
};

class CrossCheckGroup final : public GroupDecorator {
 public:
  CrossCheckGroup(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ProcessGroup> other,
                  const CrossCheckOptions& options)
      : GroupDecorator(std::move(group)), other_(std::move(other)), options_(options) {
    if (!other_) throw InvalidArgument("with_cross_check: the other group must not be null");
    if (other_->rank() != rank() || other_->size() != size()) {
      throw InvalidArgument(
          fmt::format("with_cross_check on rank {} of {}: expected the same rank in the other group, "
                      "got rank {} of {}",
                      rank(), size(), other_->rank(), other_->size()));
    }
  }

  /// Disables zero_copy_reads, which leaves no outputs to compare, and hierarchical, whose inter-host stage is
  /// stateful.
  Capabilities capabilities() const override {
    Capabilities all = GroupDecorator::capabilities();
    all.zero_copy_reads = false;
    all.hierarchical = false;
    return all;
  }

  WorkPtr run(Operation operation) override {
    Operation copy = operation;
    copy.outputs.clear();
    for (const Tensor& t : operation.outputs) copy.outputs.push_back(t.clone());
    // Preserves aliasing: an input that is also an output is replaced by the copy of that output.
    for (Tensor& t : copy.inputs) {
      const auto same = std::find_if(operation.outputs.begin(), operation.outputs.end(),
                                     [&](const Tensor& o) { return o.bytes() == t.bytes() && o.numel() == t.numel(); });
      t = same == operation.outputs.end() ? t.clone()
                                          : copy.outputs[static_cast<std::size_t>(same - operation.outputs.begin())];
    }
    auto other_outputs = defines_outputs(operation, rank()) ? copy.outputs : std::vector<Tensor>();
    std::string label = fmt::format("{} on rank {}: {} and {} differ", name(operation.type), rank(),
                                    inner()->backend_name(), other_->backend_name());
    const auto first = inner()->run(std::move(operation));
    const auto second = other_->run(std::move(copy));
    label += fmt::format(" in operation number {}", first->sequence_number());
    const auto work =
        std::make_shared<CrossCheckWork>(first, second, std::move(other_outputs), std::move(label), options_.tolerance);
    if (coalescing_.active()) coalescing_.add(work);
    return work;
  }

  void start_coalescing() override { coalescing_.start(); }
  WorkPtr end_coalescing() override { return coalescing_.end(); }
  void coalesce(const WorkPtr& work) override { coalescing_.add(work); }

  void set_timeout(Milliseconds timeout) override {
    inner()->set_timeout(timeout);
    other_->set_timeout(timeout);
  }
  void abort(const std::string& cause) override {
    group::abort_quietly(*other_, cause);  // first, because the inner group may throw
    inner()->abort(cause);
  }
  void shutdown() override {
    inner()->shutdown();
    other_->shutdown();
  }
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override {
    auto first = inner()->new_group(ranks);
    auto second = other_->new_group(ranks);
    return first ? with_cross_check(std::move(first), std::move(second), options_) : nullptr;
  }
  std::shared_ptr<ProcessGroup> split(int color, int key) override {
    auto first = inner()->split(color, key);
    auto second = other_->split(color, key);
    return first ? with_cross_check(std::move(first), std::move(second), options_) : nullptr;
  }

 private:
  const std::shared_ptr<ProcessGroup> other_;
  const CrossCheckOptions options_;
  Coalescing coalescing_;
};

}  // namespace

std::shared_ptr<ProcessGroup> with_cross_check(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ProcessGroup> other,
                                               const CrossCheckOptions& options) {
  return std::make_shared<CrossCheckGroup>(std::move(group), std::move(other), options);
}

}  // namespace hookline
