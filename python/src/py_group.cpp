// The lifetime of native groups in Python: callback threads, destruction, Python's exit and forked children.
#include "py_group.hpp"

#include <utility>
#include <vector>

#include <unistd.h>

#include <hookline/core/error.hpp>

#include "gil_release.hpp"
#include "live_objects.hpp"
#include "py_call.hpp"
#include "py_process_group.hpp"

namespace hookline::python {
namespace {

/// Replaces the inner group of a group that the garbage collector has cleared.
class ClearedGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string backend_name() const override { return "garbage"; }
  WorkPtr run(Operation) override {
    throw Aborted("this group was part of a cycle that the garbage collector cleared");
  }
};

/// Destroys a group without the GIL, because its destructor may join threads that need the GIL.
void release_without_gil(std::shared_ptr<ProcessGroup> group) {
  if (!holds_gil()) return;
  const GilRelease released;
  group.reset();
}

}  // namespace

std::shared_ptr<ProcessGroup> NativeGroup::make(std::shared_ptr<ProcessGroup> inner,
                                                std::vector<PyRef> wrapped_groups) {
  if (!inner) return nullptr;
  return std::make_shared<NativeGroup>(std::move(inner), std::move(wrapped_groups));
}

NativeGroup::NativeGroup(std::shared_ptr<ProcessGroup> inner, std::vector<PyRef> wrapped_groups)
    : GroupDecorator(std::move(inner)), wrapped_groups_(std::move(wrapped_groups)), creator_pid_(getpid()) {
  LiveObjects<NativeGroup>::add(this);
}

NativeGroup::~NativeGroup() {
  if (creator_pid_ != getpid()) {
    // In a forked child the group's threads do not exist and cannot be joined, so the group is leaked.
    LiveObjects<NativeGroup>::leak(exchange_inner(nullptr));
    return;
  }
  LiveObjects<NativeGroup>::remove(this);
  release_without_gil(exchange_inner(nullptr));
  callback_thread_.stop();  // runs tasks posted by the destructor before hooks and wrapped groups are released
}

std::shared_ptr<ProcessGroup> NativeGroup::new_group(const std::vector<int>& ranks) {
  return make(inner()->new_group(ranks), wrapped_groups_);
}

std::shared_ptr<ProcessGroup> NativeGroup::split(int color, int key) {
  return make(inner()->split(color, key), wrapped_groups_);
}

void NativeGroup::abort(const std::string& cause) {
  if (creator_pid_ != getpid()) {
    throw InvalidArgument("abort on a " + backend_name() +
                          " group that was made before fork(). Create a new group in the child process.");
  }
  inner()->abort(cause);
}

int NativeGroup::traverse(visitproc visit, void* arg) {
  if (const int stopped = ref_counter_->traverse(visit, arg)) return stopped;
  if (weak_from_this().use_count() != 1) return 0;
  for (const PyRef& group : wrapped_groups_) {
    // Skips a reference that is shared with subgroups from new_group(), which also keep the object alive.
    if (group.owner().use_count() == 2) Py_VISIT(group.get().ptr());
  }
  return hook_list_.traverse(visit, arg);
}

void NativeGroup::clear() {
  if (weak_from_this().use_count() != 1) return;
  hook_list_.clear();
  if (wrapped_groups_.empty()) return;
  // The inner group is released first, because it has unowned pointers to the wrapped groups.
  release_without_gil(exchange_inner(std::make_shared<ClearedGroup>()));
  const auto released = std::exchange(wrapped_groups_, {});
}

std::shared_ptr<ProcessGroup> borrowed_group(nb::handle group) {
  if (nb::isinstance<ProcessGroup>(group) && !nb::inst_ready(group)) {
    throw nb::type_error(missing_super_init(group, "rank, size").c_str());
  }
  ProcessGroup* pointer = nullptr;
  if (group.is_none() || !nb::try_cast(group, pointer)) {
    throw nb::type_error(("expected a hookline.ProcessGroup, got " + class_name_of(group)).c_str());
  }
  return {std::shared_ptr<void>(), pointer};
}

std::shared_ptr<Executor> callback_executor_of(ProcessGroup& group) {
  if (auto* native = dynamic_cast<NativeGroup*>(&group)) return native->callback_thread().executor();
  if (auto* python = as_python_group(group)) return python->callback_thread().executor();
  if (auto* tracked = dynamic_cast<GcTrackedGroup*>(&group)) return callback_executor_of(*tracked->inner());
  return callback_executor();
}

void shutdown_groups() {
  const GilRelease released;
  std::vector<std::shared_ptr<ProcessGroup>> live_groups;
  LiveObjects<NativeGroup>::for_each([&](NativeGroup& group) {
    if (auto live = group.weak_from_this().lock()) live_groups.push_back(std::move(live));
  });
  for (const auto& group : live_groups) {
    try {
      group->shutdown();
    } catch (const Error&) {  // from a group written in Python; there is no caller to report it to
    }
  }
  drain_callback_threads();
}

}  // namespace hookline::python
