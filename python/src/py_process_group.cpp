// Calls from C++ into process groups written in Python.
#include "py_process_group.hpp"

#include <utility>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/core/error.hpp>
#include <hookline/group/arguments.hpp>

#include "group/wire_bytes.hpp"
#include "group_methods.hpp"
#include "py_call.hpp"
#include "py_error.hpp"
#include "py_work.hpp"
#include "timeout_arg.hpp"

namespace hookline::python {
namespace {

constexpr const char* kGroup = "a hookline.ProcessGroup or None";

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

PyProcessGroup::Answer PyProcessGroup::call(const MethodNames& names, const char* signature,
                                            const nb::object& arguments) const {
  for (const char* const name : names) {
    if (!name) break;
    const nb::detail::ticket ticket(nb_trampoline, name, nb::detail::str_hash(name), false);
    if (ticket.key.is_valid()) return {name, call_method(nb_trampoline.base(), ticket.key, arguments, signature)};
  }
  return {};
}

PyProcessGroup::Answer PyProcessGroup::ask(const MethodNames& names) const {
  for (const char* const name : names) {
    if (!name) break;
    if (!overrides(name)) continue;
    const nb::object found = nb::getattr(nb_trampoline.base(), name);
    if (PyCallable_Check(found.ptr()) == 0) return {name, found};
    return {name, call_method(nb_trampoline.base(), name, nb::make_tuple(), "()")};
  }
  return {};
}

template <class T>
T PyProcessGroup::read(const Answer& answer, const char* expected) const {
  T value{};
  if (!nb::try_cast(answer.result, value)) wrong_result(nb_trampoline.base(), answer.method, expected, answer.result);
  return value;
}

int PyProcessGroup::number(const MethodNames& names, std::atomic<int>& known, int own, int least,
                           const char* what) const {
  int number = known.load(std::memory_order_relaxed);
  if (number >= 0) return number;
  number = in_python(names[0], [&] {
    const Answer answer = call(names, "()", nb::make_tuple());
    const int value = answer ? read<int>(answer, what) : own;
    if (value < least) wrong_result(nb_trampoline.base(), answer.method, what, answer.result);
    return value;
  });
  known.store(number, std::memory_order_relaxed);
  return number;
}

int PyProcessGroup::rank() const { return number({"rank", "getRank"}, rank_, own_rank_, 0, "a rank"); }

int PyProcessGroup::size() const { return number({"size", "getSize"}, size_, own_size_, 1, "a size"); }

std::string PyProcessGroup::backend_name() const {
  return in_python("getBackendName", [&] {
    const Answer answer = call({"getBackendName", "backend_name"}, "()", nb::make_tuple());
    return answer ? read<std::string>(answer, "a str") : class_name();
  });
}

std::optional<std::string> PyProcessGroup::ask_text(const MethodNames& names) const {
  return in_python(names[0], [&] {
    const Answer answer = ask(names);
    return answer ? std::optional(read<std::string>(answer, "a str")) : std::nullopt;
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
    const group::SentBytes sent;
    const Answer answer = call(method.names, method.signature, arguments_of(collective, ranks));
    if (!answer) lacks(method.names[0]);
    sent.add(collective, ranks);
    const std::uint64_t number = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
    WorkOrigin origin{.group_class = class_name(),
                      .method = answer.method,
                      .type = collective.type,
                      .sequence = number,
                      .deadline = deadline_after(collective.timeout.value_or(timeout())),
                      .outputs = collective.outputs};
    return work_of(nb_trampoline.base(), answer.result, std::move(origin));
  });
}

void PyProcessGroup::start_coalescing() {
  in_python("start_coalescing", [&] {
    if (!call_for_device({"start_coalescing", "_start_coalescing"})) lacks("start_coalescing");
  });
}

WorkPtr PyProcessGroup::end_coalescing() {
  return in_python("end_coalescing", [&] {
    const Answer answer = call_for_device({"end_coalescing", "_end_coalescing"});
    if (!answer) lacks("end_coalescing");
    return work_of(nb_trampoline.base(), answer.result,
                   {.group_class = class_name(),
                    .method = answer.method,
                    .type = OpType::barrier,
                    .sequence = own_sequence_number(),
                    .deadline = deadline_after(timeout()),
                    .outputs = {}});
  });
}

PyProcessGroup::Answer PyProcessGroup::call_for_device(const MethodNames& names) const {
  for (const char* const name : names) {
    if (!name) break;
    if (!overrides(name)) continue;
    if (!takes_arguments(nb_trampoline.base(), name, 1)) return call({name}, "()", nb::make_tuple());
    // A class written for torch gets torch's device.
    const nb::dict modules = nb::module_::import_("sys").attr("modules");
    const nb::object device = modules.contains("torch") ? modules["torch"].attr("device")("cpu") : nb::none();
    return call({name}, "(device)", nb::make_tuple(device));
  }
  return {};
}

// torch's split_group takes more, which may have no defaults in an override.
std::shared_ptr<ProcessGroup> PyProcessGroup::new_group(const std::vector<int>& ranks) {
  return in_python("new_group", [&] {
    Answer answer = call({"new_group"}, "(ranks)", nb::make_tuple(ranks));
    if (!answer) {
      const nb::object none = nb::none();
      const bool all = overrides("split_group") && !takes_arguments(nb_trampoline.base(), "split_group", 1);
      answer = call({"split_group"}, "(ranks, timeout, opts, group_name, group_desc)",
                    all ? nb::make_tuple(ranks, none, none, none, none) : nb::make_tuple(ranks));
    }
    if (!answer) lacks("new_group");
    return read<std::shared_ptr<ProcessGroup>>(answer, kGroup);
  });
}

std::shared_ptr<ProcessGroup> PyProcessGroup::split(int color, int key) {
  const auto own = in_python("split", [&] {
    const Answer answer = call({"split"}, "(color, key)", nb::make_tuple(color, key));
    return answer ? std::optional(read<std::shared_ptr<ProcessGroup>>(answer, kGroup)) : std::nullopt;
  });
  return own ? *own : ProcessGroup::split(color, key);
}

std::uint64_t PyProcessGroup::sequence_number() const {
  return in_python("sequence_number", [&] {
    const Answer answer = ask({"sequence_number", "_get_sequence_number_for_group"});
    return answer ? read<std::uint64_t>(answer, "a number") : own_sequence_number();
  });
}

// Asked for every operation: a class that has none of its own is asked once.
Milliseconds PyProcessGroup::timeout() const {
  if (asks_timeout_.load(std::memory_order_relaxed) == 0) return own_timeout();
  return in_python("timeout", [&] {
    const Answer answer = ask({"timeout"});
    asks_timeout_.store(answer ? 1 : 0, std::memory_order_relaxed);
    return answer ? Milliseconds(read<TimeoutArg>(answer, "seconds or a timedelta")) : own_timeout();
  });
}

void PyProcessGroup::set_timeout(Milliseconds timeout) {
  in_python("set_timeout", [&] {
    if (!call({"set_timeout"}, "(timeout)", nb::make_tuple(timeout))) set_own_timeout(timeout);
  });
}

void PyProcessGroup::register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor) {
  hooks_.add(std::move(hook), std::move(executor));
}

void PyProcessGroup::wait_for_hooks(std::optional<Milliseconds> timeout) {
  hooks_.wait(timeout.value_or(this->timeout()));
}

// torch's takes no argument, ours a cause. A class without one has nothing to abort, as in torch.
void PyProcessGroup::abort(const std::string& cause) {
  in_python("abort", [&] {
    const nb::object arguments = takes_arguments(nb_trampoline.base(), "abort", 1) ? nb::object(nb::make_tuple(cause))
                                                                                   : nb::object(nb::make_tuple());
    call({"abort"}, "(cause)", arguments);
  });
}

void PyProcessGroup::shutdown() {
  in_python("shutdown", [&] { call({"shutdown"}, "()", nb::make_tuple()); });
}

}  // namespace hookline::python
