// The life of a native group in Python: its callback thread, its end, and the end of Python or of a forked child.
#include "py_group.hpp"

#include <utility>
#include <vector>

#include <unistd.h>

#include <hookline/core/error.hpp>

#include "gil_release.hpp"
#include "living.hpp"
#include "py_call.hpp"
#include "py_process_group.hpp"

namespace hookline::python {
namespace {

/// What is left of a group that was part of a cycle.
class TakenApart final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string backend_name() const override { return "garbage"; }
  WorkPtr run(Collective) override {
    throw Aborted("this group was part of a cycle that the garbage collector took apart");
  }
};

/// The end of a group may wait for threads that want the GIL.
void drop_without_gil(std::shared_ptr<ProcessGroup> group) {
  if (!holds_gil()) return;
  const GilRelease released;
  group.reset();
}

}  // namespace

std::shared_ptr<ProcessGroup> NativeGroup::make(std::shared_ptr<ProcessGroup> inner, std::vector<PyRef> around) {
  if (!inner) return nullptr;
  return std::make_shared<NativeGroup>(std::move(inner), std::move(around));
}

NativeGroup::NativeGroup(std::shared_ptr<ProcessGroup> inner, std::vector<PyRef> around)
    : GroupDecorator(std::move(inner)), around_(std::move(around)), made_in_(getpid()) {
  Living<NativeGroup>::add(this);
}

NativeGroup::~NativeGroup() {
  if (made_in_ != getpid()) {
    // A forked child: the threads that an orderly end would join are the parent's, so everything is left as it is.
    Living<NativeGroup>::keep_for_ever(exchange_inner(nullptr));
    return;
  }
  Living<NativeGroup>::remove(this);
  drop_without_gil(exchange_inner(nullptr));
  callbacks_.end();  // what its end has posted runs before the hooks and the groups around are let go of
}

std::shared_ptr<ProcessGroup> NativeGroup::new_group(const std::vector<int>& ranks) {
  return make(inner()->new_group(ranks), around_);
}

std::shared_ptr<ProcessGroup> NativeGroup::split(int color, int key) {
  return make(inner()->split(color, key), around_);
}

void NativeGroup::abort(const std::string& cause) {
  if (made_in_ != getpid()) {
    throw InvalidArgument("abort on a " + backend_name() +
                          " group that was made before fork(); make a new group in the child process");
  }
  inner()->abort(cause);
}

int NativeGroup::traverse(visitproc visit, void* arg) {
  if (const int stopped = held_references_->traverse(visit, arg)) return stopped;
  if (weak_from_this().use_count() != 1) return 0;
  for (const PyRef& group : around_) {
    // Groups that new_group() made share the reference.
    if (group.owner().use_count() == 2) Py_VISIT(group.get().ptr());
  }
  return hook_list_.traverse(visit, arg);
}

void NativeGroup::clear() {
  if (weak_from_this().use_count() != 1) return;
  hook_list_.clear();
  if (around_.empty()) return;
  drop_without_gil(exchange_inner(std::make_shared<TakenApart>()));  // it refers to the groups around
  const auto around = std::exchange(around_, {});
}

std::shared_ptr<ProcessGroup> borrowed_group(nb::handle group) {
  if (nb::isinstance<ProcessGroup>(group) && !nb::inst_ready(group)) {
    throw nb::type_error(forgotten_init(group, "rank, size").c_str());
  }
  ProcessGroup* pointer = nullptr;
  if (group.is_none() || !nb::try_cast(group, pointer)) {
    throw nb::type_error(("expected a hookline.ProcessGroup, not " + class_of(group)).c_str());
  }
  return {std::shared_ptr<void>(), pointer};
}

std::shared_ptr<Executor> callbacks_of(ProcessGroup& group) {
  if (auto* native = dynamic_cast<NativeGroup*>(&group)) return native->callbacks().executor();
  if (auto* python = python_group(group)) return python->callbacks().executor();
  if (auto* held = dynamic_cast<HeldGroup*>(&group)) return callbacks_of(*held->inner());
  return callback_executor();
}

void end_groups() {
  const GilRelease released;
  std::vector<std::shared_ptr<ProcessGroup>> left;
  Living<NativeGroup>::for_each([&](NativeGroup& group) {
    if (auto kept = group.weak_from_this().lock()) left.push_back(std::move(kept));
  });
  for (const auto& group : left) {
    try {
      group->shutdown();
    } catch (const Error&) {  // of a group written in Python; nobody is left who could hear of it
    }
  }
  drain_callback_threads();
}

}  // namespace hookline::python
