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
#include "timeout_arg.hpp"

namespace hookline::python {
namespace {

constexpr const char* kRank[] = {"rank", nullptr};
constexpr const char* kSize[] = {"size", nullptr};
constexpr const char* kName[] = {"getBackendName", "backend_name", nullptr};
constexpr const char* kNewGroup[] = {"new_group", nullptr};
constexpr const char* kSplitGroup[] = {"split_group", nullptr};
constexpr const char* kSplit[] = {"split", nullptr};
constexpr const char* kSetTimeout[] = {"set_timeout", nullptr};
constexpr const char* kAbort[] = {"abort", nullptr};
constexpr const char* kShutdown[] = {"shutdown", nullptr};

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

void PyProcessGroup::refuse_super(const char* method) const {
  if (overrides(method)) lacks((std::string(method) + " in its base").c_str());
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

nb::object PyProcessGroup::ask(std::initializer_list<const char*> names, const char** asked) const {
  for (const char* const name : names) {
    if (!overrides(name)) continue;
    *asked = name;
    const nb::object found = nb::getattr(nb_trampoline.base(), name);
    return PyCallable_Check(found.ptr()) != 0 ? call_method(nb_trampoline.base(), name, nb::make_tuple(), "()") : found;
  }
  return {};
}

std::optional<std::string> PyProcessGroup::ask_text(std::initializer_list<const char*> names) const {
  return in_python(*names.begin(), [&]() -> std::optional<std::string> {
    const char* asked = nullptr;
    const nb::object result = ask(names, &asked);
    if (!result.is_valid()) return std::nullopt;
    if (!nb::isinstance<nb::str>(result)) wrong_result(nb_trampoline.base(), asked, "a str", result);
    return nb::cast<std::string>(result);
  });
}

std::string PyProcessGroup::group_name() const {
  const auto own = ask_text({"name", "group_name"});
  return own ? *own : backend_name();
}

std::string PyProcessGroup::description() const {
  const auto own = ask_text({"description", "group_desc"});
  return own ? *own : ProcessGroup::description();
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

void PyProcessGroup::start_coalescing() {
  in_python("start_coalescing", [&] {
    const char* called = nullptr;
    if (!call_for_device({"start_coalescing", "_start_coalescing"}, &called).is_valid()) lacks("start_coalescing");
  });
}

WorkPtr PyProcessGroup::end_coalescing() {
  return in_python("end_coalescing", [&] {
    const char* called = "end_coalescing";
    const nb::object result = call_for_device({"end_coalescing", "_end_coalescing"}, &called);
    if (!result.is_valid()) lacks("end_coalescing");
    return work_of(nb_trampoline.base(), result,
                   {.group_class = class_name(),
                    .method = called,
                    .type = OpType::barrier,
                    .sequence = own_sequence_number(),
                    .deadline = deadline_after(timeout()),
                    .outputs = {}});
  });
}

nb::object PyProcessGroup::call_for_device(std::initializer_list<const char*> names, const char** called) const {
  for (const char* const name : names) {
    if (!overrides(name)) continue;
    const char* const only[] = {name, nullptr};
    if (!takes_arguments(nb_trampoline.base(), name, 1)) return call(only, "()", nb::make_tuple(), called);
    // A class written for torch gets torch's device.
    const nb::dict modules = nb::module_::import_("sys").attr("modules");
    const nb::object device = modules.contains("torch") ? modules["torch"].attr("device")("cpu") : nb::none();
    return call(only, "(device)", nb::make_tuple(device), called);
  }
  return {};
}

std::shared_ptr<ProcessGroup> PyProcessGroup::group_of(const nb::object& result, const char* method) const {
  std::shared_ptr<ProcessGroup> group;
  if (!result.is_none() && !nb::try_cast(result, group)) {
    wrong_result(nb_trampoline.base(), method, "a hookline.ProcessGroup or None", result);
  }
  return group;
}

// torch's split_group takes more, which may have no defaults in an override.
std::shared_ptr<ProcessGroup> PyProcessGroup::new_group(const std::vector<int>& ranks) {
  return in_python("new_group", [&] {
    const char* called = nullptr;
    nb::object result = call(kNewGroup, "(ranks)", nb::make_tuple(ranks), &called);
    if (!result.is_valid()) {
      const nb::object none = nb::none();
      const bool all = overrides("split_group") && !takes_arguments(nb_trampoline.base(), "split_group", 1);
      result = call(kSplitGroup, "(ranks, timeout, opts, group_name, group_desc)",
                    all ? nb::make_tuple(ranks, none, none, none, none) : nb::make_tuple(ranks), &called);
    }
    if (!result.is_valid()) lacks("new_group");
    return group_of(result, called);
  });
}

std::shared_ptr<ProcessGroup> PyProcessGroup::split(int color, int key) {
  const auto own = in_python("split", [&]() -> std::optional<std::shared_ptr<ProcessGroup>> {
    const char* called = nullptr;
    const nb::object result = call(kSplit, "(color, key)", nb::make_tuple(color, key), &called);
    if (!result.is_valid()) return std::nullopt;
    return group_of(result, called);
  });
  return own ? *own : ProcessGroup::split(color, key);
}

std::uint64_t PyProcessGroup::sequence_number() const {
  return in_python("sequence_number", [&] {
    const char* asked = nullptr;
    const nb::object result = ask({"sequence_number", "_get_sequence_number_for_group"}, &asked);
    std::uint64_t number = own_sequence_number();
    if (result.is_valid() && !nb::try_cast(result, number)) {
      wrong_result(nb_trampoline.base(), asked, "a number", result);
    }
    return number;
  });
}

// Asked for every operation: a class that has none of its own is asked once.
Milliseconds PyProcessGroup::timeout() const {
  if (asks_timeout_.load(std::memory_order_relaxed) == 0) return own_timeout();
  return in_python("timeout", [&] {
    const char* asked = nullptr;
    const nb::object result = ask({"timeout"}, &asked);
    asks_timeout_.store(result.is_valid() ? 1 : 0, std::memory_order_relaxed);
    if (!result.is_valid()) return own_timeout();
    TimeoutArg timeout;
    if (!nb::try_cast(result, timeout)) {
      wrong_result(nb_trampoline.base(), asked, "seconds or a timedelta", result);
    }
    return Milliseconds(timeout);
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
