// A group whose waits throw as after Ctrl-C, while the operations continue.
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hookline/core/future.hpp>
#include <hookline/group/decorator.hpp>

namespace hookline::testing {

class InterruptedGroup final : public GroupDecorator {
 public:
  explicit InterruptedGroup(ProcessGroup& inner) : GroupDecorator(inner.shared_from_this()) {}

  struct Interrupt : std::domain_error {
    using std::domain_error::domain_error;
  };

  /// Runs the next `count` operations without interruption.
  void allow(int count) { allowed_ = count; }

  WorkPtr run(Operation collective) override {
    if (allowed_-- > 0) return GroupDecorator::run(std::move(collective));
    interrupted_operations_.push_back(std::move(collective));
    Promise<std::vector<Tensor>> wait;
    wait.set_error(std::make_exception_ptr(Interrupt("Ctrl-C")));
    return make_work(wait.get_future(), interrupted_operations_.back().type);
  }
  std::shared_ptr<ProcessGroup> split(int color, int key) override { return ProcessGroup::split(color, key); }

  void abort(const std::string&) override {}  // uninterrupted ranks may still use the group

  /// True if all tensors of the interrupted operations own their memory, which outlives the caller.
  bool tensors_alive() const {
    const auto owned = [](const Tensor& t) { return t.owner() != nullptr; };
    return !interrupted_operations_.empty() && std::ranges::all_of(interrupted_operations_, [&](const Operation& c) {
      return std::ranges::all_of(c.inputs, owned) && std::ranges::all_of(c.outputs, owned);
    });
  }

 private:
  int allowed_ = 0;
  std::vector<Operation> interrupted_operations_;
};

}  // namespace hookline::testing
