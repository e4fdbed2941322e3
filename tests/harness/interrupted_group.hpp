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
  void let_pass(int count) { left_ = count; }

  WorkPtr run(Collective collective) override {
    if (left_-- > 0) return GroupDecorator::run(std::move(collective));
    going_on_.push_back(std::move(collective));
    Promise<std::vector<Tensor>> wait;
    wait.set_error(std::make_exception_ptr(Interrupt("Ctrl-C")));
    return make_work(wait.get_future(), going_on_.back().type);
  }
  std::shared_ptr<ProcessGroup> split(int color, int key) override { return ProcessGroup::split(color, key); }

  void abort(const std::string&) override {}  // uninterrupted ranks may still use the group

  /// True if all tensors of the interrupted operations own their memory, which outlives the caller.
  bool memory_lives() const {
    const auto owned = [](const Tensor& t) { return t.owner() != nullptr; };
    return !going_on_.empty() && std::ranges::all_of(going_on_, [&](const Collective& c) {
      return std::ranges::all_of(c.inputs, owned) && std::ranges::all_of(c.outputs, owned);
    });
  }

 private:
  int left_ = 0;
  std::vector<Collective> going_on_;
};

}  // namespace hookline::testing
