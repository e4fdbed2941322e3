// Calls of process groups written in Python.
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

constexpr const char* kGroupOrNone = "a hookline.ProcessGroup or None";

}  // namespace

PyProcessGroup::PyProcessGroup(int rank, int size) : base_rank_(rank), base_size_(size) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgument("ProcessGroup: expected size >= 1 and 0 <= rank < size, got rank " + std::to_string(rank) +
                          ", size " + std::to_string(size));
  }
}

std::string PyProcessGroup::class_name() const { return class_name_of(nb_trampoline.base()); }

bool PyProcessGroup::overrides(const char* method) const {
  const nb::handle type = nb_trampoline.base().type();
  return !nb::getattr(type, method).is(nb::getattr(nb::type<ProcessGroup>(), method));
}

void PyProcessGroup::throw_unsupported(const char* method) const {
  throw Unsupported(class_name() + " has no " + method + "; define " + method + " in the class");
}

void PyProcessGroup::throw_if_super_call(const char* method) const {
  if (overrides(method)) throw_unsupported((std::string(method) + " in its base").c_str());
}

PyProcessGroup::CallResult PyProcessGroup::call(const MethodNames& names, const char* signature,
                                                const nb::object& arguments) const {
  for (const char* const name : names) {
    if (!name) break;
    const nb::detail::ticket ticket(nb_trampoline, name, nb::detail::str_hash(name), false);
    if (ticket.key.is_valid()) return {name, call_method(nb_trampoline.base(), ticket.key, arguments, signature)};
  }
  return {};
}

PyProcessGroup::CallResult PyProcessGroup::query(const MethodNames& names) const {
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
T PyProcessGroup::convert(const CallResult& answer, const char* expected) const {
  T value{};
  if (!nb::try_cast(answer.result, value))
    throw_wrong_result(nb_trampoline.base(), answer.method, expected, answer.result);
  return value;
}

int PyProcessGroup::cached_int(const MethodNames& names, std::atomic<int>& cache, int base_value, int minimum,
                               const char* expected) const {
  int number = cache.load(std::memory_order_relaxed);
  if (number >= 0) return number;
  number = call_python(names[0], [&] {
    const CallResult answer = call(names, "()", nb::make_tuple());
    const int value = answer ? convert<int>(answer, expected) : base_value;
    if (value < minimum) throw_wrong_result(nb_trampoline.base(), answer.method, expected, answer.result);
    return value;
  });
  cache.store(number, std::memory_order_relaxed);
  return number;
}

int PyProcessGroup::rank() const { return cached_int({"rank", "getRank"}, rank_, base_rank_, 0, "a rank"); }

int PyProcessGroup::size() const { return cached_int({"size", "getSize"}, size_, base_size_, 1, "a size"); }

std::string PyProcessGroup::backend_name() const {
  return call_python("getBackendName", [&] {
    const CallResult answer = call({"getBackendName", "backend_name"}, "()", nb::make_tuple());
    return answer ? convert<std::string>(answer, "a str") : class_name();
  });
}

std::optional<std::string> PyProcessGroup::query_string(const MethodNames& names) const {
  return call_python(names[0], [&] {
    const CallResult answer = query(names);
    return answer ? std::optional(convert<std::string>(answer, "a str")) : std::nullopt;
  });
}

std::string PyProcessGroup::group_name() const {
  const auto override_name = query_string({"name", "group_name"});
  return override_name ? *override_name : backend_name();
}

std::string PyProcessGroup::description() const {
  const auto override_description = query_string({"description", "group_desc"});
  return override_description ? *override_description : ProcessGroup::description();
}

// The owners of the tensors are Python objects, which are released with the GIL here.
WorkPtr PyProcessGroup::run(Operation collective) {
  check_arguments(collective, rank(), size());
  const GilAcquire gil;
  const Operation operation = std::move(collective);
  if (!completion_hooks_.any()) return start(operation);
  const WorkInfo info = describe_work(operation);
  return completion_hooks_.attach(info, start(operation));
}

WorkPtr PyProcessGroup::start(const Operation& collective) {
  const GroupMethod& method = method_of(collective.type);
  const int ranks = size();
  return call_python(method.names[0], [&]() -> WorkPtr {
    const group::SentBytes sent;
    const CallResult answer = call(method.names, method.signature, arguments_of(collective, ranks));
    if (!answer) throw_unsupported(method.names[0]);
    sent.add(collective, ranks);
    const std::uint64_t number = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
    WorkOrigin origin{.group_class = class_name(),
                      .method = answer.method,
                      .type = collective.type,
                      .sequence = number,
                      .deadline = deadline_after(collective.timeout.value_or(timeout())),
                      .outputs = collective.outputs};
    return wrap_work(nb_trampoline.base(), answer.result, std::move(origin));
  });
}

void PyProcessGroup::start_coalescing() {
  call_python("start_coalescing", [&] {
    if (!call_for_device({"start_coalescing", "_start_coalescing"})) throw_unsupported("start_coalescing");
  });
}

WorkPtr PyProcessGroup::end_coalescing() {
  return call_python("end_coalescing", [&] {
    const CallResult answer = call_for_device({"end_coalescing", "_end_coalescing"});
    if (!answer) throw_unsupported("end_coalescing");
    return wrap_work(nb_trampoline.base(), answer.result,
                     {.group_class = class_name(),
                      .method = answer.method,
                      .type = OpType::barrier,
                      .sequence = base_sequence_number(),
                      .deadline = deadline_after(timeout()),
                      .outputs = {}});
  });
}

PyProcessGroup::CallResult PyProcessGroup::call_for_device(const MethodNames& names) const {
  for (const char* const name : names) {
    if (!name) break;
    if (!overrides(name)) continue;
    if (!accepts_arguments(nb_trampoline.base(), name, 1)) return call({name}, "()", nb::make_tuple());
    // A class written for torch expects a torch.device.
    const nb::dict modules = nb::module_::import_("sys").attr("modules");
    const nb::object device = modules.contains("torch") ? modules["torch"].attr("device")("cpu") : nb::none();
    return call({name}, "(device)", nb::make_tuple(device));
  }
  return {};
}

// torch's split_group has more parameters, which may have no defaults in an override.
std::shared_ptr<ProcessGroup> PyProcessGroup::new_group(const std::vector<int>& ranks) {
  return call_python("new_group", [&] {
    CallResult answer = call({"new_group"}, "(ranks)", nb::make_tuple(ranks));
    if (!answer) {
      const nb::object none = nb::none();
      const bool needs_all_arguments =
          overrides("split_group") && !accepts_arguments(nb_trampoline.base(), "split_group", 1);
      answer = call({"split_group"}, "(ranks, timeout, opts, group_name, group_desc)",
                    needs_all_arguments ? nb::make_tuple(ranks, none, none, none, none) : nb::make_tuple(ranks));
    }
    if (!answer) throw_unsupported("new_group");
    return convert<std::shared_ptr<ProcessGroup>>(answer, kGroupOrNone);
  });
}

std::shared_ptr<ProcessGroup> PyProcessGroup::split(int color, int key) {
  const auto override_result = call_python("split", [&] {
    const CallResult answer = call({"split"}, "(color, key)", nb::make_tuple(color, key));
    return answer ? std::optional(convert<std::shared_ptr<ProcessGroup>>(answer, kGroupOrNone)) : std::nullopt;
  });
  return override_result ? *override_result : ProcessGroup::split(color, key);
}

std::uint64_t PyProcessGroup::sequence_number() const {
  return call_python("sequence_number", [&] {
    const CallResult answer = query({"sequence_number", "_get_sequence_number_for_group"});
    return answer ? convert<std::uint64_t>(answer, "a number") : base_sequence_number();
  });
}

// Every operation reads the timeout, so Python is called only once if the class does not override it.
Milliseconds PyProcessGroup::timeout() const {
  if (overrides_timeout_.load(std::memory_order_relaxed) == 0) return base_timeout();
  return call_python("timeout", [&] {
    const CallResult answer = query({"timeout"});
    overrides_timeout_.store(answer ? 1 : 0, std::memory_order_relaxed);
    return answer ? Milliseconds(convert<TimeoutArg>(answer, "seconds or a timedelta")) : base_timeout();
  });
}

void PyProcessGroup::set_timeout(Milliseconds timeout) {
  call_python("set_timeout", [&] {
    if (!call({"set_timeout"}, "(timeout)", nb::make_tuple(timeout))) set_base_timeout(timeout);
  });
}

void PyProcessGroup::register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor) {
  completion_hooks_.add(std::move(hook), std::move(executor));
}

void PyProcessGroup::wait_for_hooks(std::optional<Milliseconds> timeout) {
  completion_hooks_.wait(timeout.value_or(this->timeout()));
}

// torch's abort() takes no argument, Hookline's takes a cause. Without an override, abort() does nothing, as in torch.
void PyProcessGroup::abort(const std::string& cause) {
  call_python("abort", [&] {
    const nb::object arguments = accepts_arguments(nb_trampoline.base(), "abort", 1) ? nb::object(nb::make_tuple(cause))
                                                                                     : nb::object(nb::make_tuple());
    call({"abort"}, "(cause)", arguments);
  });
}

void PyProcessGroup::shutdown() {
  call_python("shutdown", [&] { call({"shutdown"}, "()", nb::make_tuple()); });
}

}  // namespace hookline::python
