// Calls from C++ into process groups written in Python.
#include "py_process_group.hpp"

#include <utility>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/core/error.hpp>
#include <hookline/group/arguments.hpp>

#include "group_methods.hpp"
#include "py_call.hpp"
#include "py_error.hpp"
#include "py_work.hpp"

namespace hookline::python {
namespace {

constexpr const char* kRank[] = {"rank", nullptr};
constexpr const char* kSize[] = {"size", nullptr};
constexpr const char* kName[] = {"getBackendName", "backend_name", nullptr};
constexpr const char* kNewGroup[] = {"new_group", nullptr};
constexpr const char* kSetTimeout[] = {"set_timeout", nullptr};
constexpr const char* kAbort[] = {"abort", nullptr};
constexpr const char* kShutdown[] = {"shutdown", nullptr};

/// A stay in Python, or an error where there is no Python any more.
template <class F>
auto in_python(const char* method, F f) {
  const GilStay stay;
  if (!stay) throw Aborted(std::string(method) + ": Python is ending, and this group is a Python class");
  return translating_errors(f);
}

}  // namespace

PyProcessGroup::PyProcessGroup(int rank, int size) : own_rank_(rank), own_size_(size) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgument("ProcessGroup(rank, size): there is no rank " + std::to_string(rank) + " in a group of " +
                          std::to_string(size));
  }
}

std::string PyProcessGroup::class_name() const { return class_of(nb_trampoline.base()); }

bool PyProcessGroup::overrides(const char* method) const {
  const nb::handle type = nb_trampoline.base().type();
  return !nb::getattr(type, method).is(nb::getattr(nb::type<ProcessGroup>(), method));
}

void PyProcessGroup::lacks(const char* method) const {
  throw Unsupported(class_name() + " has no " + method + "; define " + method + " in the class");
}

nb::object PyProcessGroup::call(const char* const* names, const char* signature, const nb::object& arguments,
                                const char** called) const {
  for (; *names; ++names) {
    const nb::detail::ticket ticket(nb_trampoline, *names, nb::detail::str_hash(*names), false);
    if (!ticket.key.is_valid()) continue;
    *called = *names;
    return call_method(nb_trampoline.base(), ticket.key, arguments, signature);
  }
  return {};
}

int PyProcessGroup::number(const char* const* names, std::atomic<int>& known, int own, int least,
                           const char* what) const {
  int number = known.load(std::memory_order_relaxed);
  if (number >= 0) return number;
  number = in_python(names[0], [&] {
    const char* called = nullptr;
    const nb::object result = call(names, "()", nb::make_tuple(), &called);
    if (!result.is_valid()) return own;
    int value = -1;
    if (!nb::try_cast(result, value) || value < least) wrong_result(nb_trampoline.base(), called, what, result);
    return value;
  });
  known.store(number, std::memory_order_relaxed);
  return number;
}

int PyProcessGroup::rank() const { return number(kRank, rank_, own_rank_, 0, "a rank"); }

int PyProcessGroup::size() const { return number(kSize, size_, own_size_, 1, "a size"); }

std::string PyProcessGroup::backend_name() const {
  return in_python("getBackendName", [&] {
    const char* called = nullptr;
    const nb::object result = call(kName, "()", nb::make_tuple(), &called);
    if (!result.is_valid()) return class_name();
    if (!nb::isinstance<nb::str>(result)) wrong_result(nb_trampoline.base(), called, "a str", result);
    return nb::cast<std::string>(result);
  });
}

// The tensors' owners are Python objects: let go of with the GIL, they need no other thread to do it.
WorkPtr PyProcessGroup::run(Collective collective) {
  check_arguments(collective, rank(), size());
  const GilStay stay;
  const Collective held = std::move(collective);
  if (!hooks_.any()) return start(held);
  const WorkInfo info = describe_work(held);
  return hooks_.attach(info, start(held));
}

WorkPtr PyProcessGroup::start(const Collective& collective) {
  const GroupMethod& method = method_of(collective.type);
  const int ranks = size();
  return in_python(method.names[0], [&]() -> WorkPtr {
    const char* called = method.names[0];
    const nb::object result = call(method.names, method.signature, arguments_of(collective, ranks), &called);
    if (!result.is_valid()) lacks(method.names[0]);
    const std::uint64_t number = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
    WorkOrigin origin{.group_class = class_name(),
                      .method = called,
                      .type = collective.type,
                      .sequence = number,
                      .deadline = deadline_after(collective.timeout.value_or(timeout())),
                      .outputs = collective.outputs};
    return work_of(nb_trampoline.base(), result, std::move(origin));
  });
}

std::shared_ptr<ProcessGroup> PyProcessGroup::new_group(const std::vector<int>& ranks) {
  return in_python("new_group", [&] {
    const char* called = nullptr;
    const nb::object result = call(kNewGroup, "(ranks)", nb::make_tuple(ranks), &called);
    if (!result.is_valid()) lacks("new_group");
    std::shared_ptr<ProcessGroup> group;
    if (!result.is_none() && !nb::try_cast(result, group)) {
      wrong_result(nb_trampoline.base(), called, "a hookline.ProcessGroup or None", result);
    }
    return group;
  });
}

void PyProcessGroup::set_timeout(Milliseconds timeout) {
  in_python("set_timeout", [&] {
    const char* called = nullptr;
    if (!call(kSetTimeout, "(timeout)", nb::make_tuple(timeout), &called).is_valid()) set_own_timeout(timeout);
  });
}

void PyProcessGroup::register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor) {
  hooks_.add(std::move(hook), std::move(executor));
}

void PyProcessGroup::wait_for_hooks(std::optional<Milliseconds> timeout) {
  hooks_.wait(timeout.value_or(this->timeout()));
}

// torch's takes no argument, ours a cause.
void PyProcessGroup::abort(const std::string& cause) {
  in_python("abort", [&] {
    const char* called = nullptr;
    const nb::object arguments = takes_arguments(nb_trampoline.base(), "abort", 1) ? nb::object(nb::make_tuple(cause))
                                                                                   : nb::object(nb::make_tuple());
    if (!call(kAbort, "(cause)", arguments, &called).is_valid()) lacks("abort");
  });
}

void PyProcessGroup::shutdown() {
  in_python("shutdown", [&] {
    const char* called = nullptr;
    call(kShutdown, "()", nb::make_tuple(), &called);
  });
}

}  // namespace hookline::python
