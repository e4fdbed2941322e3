// The life of a native group in Python: its callback thread, its end, and the end of Python or of a forked child.
#include "py_group.hpp"

#include <atomic>
#include <future>
#include <set>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

#include <hookline/core/error.hpp>

namespace hookline::python {
namespace {

/// How long a callback that does not end may hold up the end of Python.
constexpr Milliseconds kDrainTime{5000};

struct Registry {
  std::mutex mutex;
  std::set<NativeGroup*> groups;
  /// In a forked child: what its parent's groups had, never let go of.
  std::vector<std::pair<std::shared_ptr<ProcessGroup>, std::shared_ptr<Executor>>> of_the_parent;
};

std::atomic<Registry*> registry = nullptr;  // never destroyed: groups may end after static destructors have run

void renew_registry() { registry = new Registry; }

// A forked child has none of its parent's groups, and perhaps nobody who would let go of the lock.
Registry& living() {
  static std::once_flag once;
  std::call_once(once, [] {
    renew_registry();
    pthread_atfork(nullptr, nullptr, &renew_registry);
  });
  return *registry.load();
}

}  // namespace

std::shared_ptr<ProcessGroup> NativeGroup::make(std::shared_ptr<ProcessGroup> inner) {
  if (!inner) return nullptr;
  return std::make_shared<NativeGroup>(std::move(inner));
}

NativeGroup::NativeGroup(std::shared_ptr<ProcessGroup> inner) : inner_(std::move(inner)), made_in_(getpid()) {
  Registry& all = living();
  const std::lock_guard lock(all.mutex);
  all.groups.insert(this);
}

NativeGroup::~NativeGroup() {
  if (made_in_ != getpid()) {
    // A forked child: the threads that an orderly end would join are the parent's, so everything is left as it is.
    Registry& all = living();
    const std::lock_guard lock(all.mutex);
    all.of_the_parent.emplace_back(std::move(inner_), std::move(callbacks_));
    return;
  }
  {
    Registry& all = living();
    const std::lock_guard lock(all.mutex);
    all.groups.erase(this);
  }
  const auto end = [&] {
    inner_.reset();
    callbacks_.reset();
  };
  if (holds_gil()) {
    const nb::gil_scoped_release released;
    end();
  } else {
    end();
  }
}

std::shared_ptr<ProcessGroup> NativeGroup::new_group(const std::vector<int>& ranks) {
  return make(inner_->new_group(ranks));
}

void NativeGroup::abort(const std::string& cause) {
  if (made_in_ != getpid()) {
    throw InvalidArgument("abort on a " + backend_name() +
                          " group that was made before fork(); make a new group in the child process");
  }
  inner_->abort(cause);
}

std::shared_ptr<Executor> NativeGroup::callbacks() {
  const std::lock_guard lock(mutex_);
  if (!callbacks_) callbacks_ = std::make_shared<ThreadExecutor>("hl-callbacks");
  return callbacks_;
}

void NativeGroup::drain_callbacks() {
  std::shared_ptr<Executor> executor;
  {
    const std::lock_guard lock(mutex_);
    executor = callbacks_;
  }
  if (!executor) return;
  const auto reached = std::make_shared<std::promise<void>>();
  executor->post([reached] { reached->set_value(); });
  reached->get_future().wait_for(kDrainTime);
}

std::shared_ptr<Executor> callbacks_of(ProcessGroup& group) {
  if (auto* native = dynamic_cast<NativeGroup*>(&group)) return native->callbacks();
  return callback_executor();
}

void end_groups() {
  const nb::gil_scoped_release released;
  std::vector<std::shared_ptr<ProcessGroup>> left;
  {
    Registry& all = living();
    const std::lock_guard lock(all.mutex);
    for (NativeGroup* group : all.groups) {
      if (auto kept = group->weak_from_this().lock()) left.push_back(std::move(kept));
    }
  }
  for (const auto& group : left) group->shutdown();
  for (const auto& group : left) static_cast<NativeGroup&>(*group).drain_callbacks();
}

}  // namespace hookline::python
