// Runs Python hooks and converts their results.
#include "py_hook.hpp"

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/core/call_context.hpp>
#include <hookline/core/error.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/hook_state.hpp>

#include "py_error.hpp"
#include "py_future.hpp"
#include "tensor_export.hpp"
#include "tensor_import.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

nb::object hooks_module() { return nb::module_::import_("hookline._hooks"); }
nb::object state_module() { return nb::module_::import_("hookline._hook_state"); }

thread_local HookConstructionScope* construction_scope = nullptr;

HookPtr make_python_hook(nb::object state, nb::object function, std::string name, bool reports_contribution,
                         int ranks) {
  auto hook = std::make_shared<PythonCommHook>(std::move(state), std::move(function), std::move(name),
                                               construction_scope && construction_scope->for_torch,
                                               reports_contribution, ranks);
  if (construction_scope) construction_scope->references.functions.push_back(hook);
  return hook;
}

/// Returns the value of an option in the type from the factory's signature; None if it is absent and has no default.
nb::object option_of(HookOptions& options, const std::string& name, const std::string& kind, nb::handle default_value,
                     const std::vector<std::string>& choices) {
  const bool has_no_default = default_value.is_none();
  const char* const expected = kind == "integer" ? "an integer" : kind == "number" ? "a number" : "a string";
  if (has_no_default && options.text(name, "", expected).empty()) return nb::none();
  const auto default_or = [&]<class T>(const T& value) { return has_no_default ? value : nb::cast<T>(default_value); };
  if (kind == "integer") return nb::int_(options.integer(name, default_or(std::int64_t{0})));
  if (kind == "number") return nb::float_(options.number(name, default_or(0.0)));
  if (kind == "boolean") return nb::bool_(options.boolean(name, default_or(false)));
  const std::string text = default_or(std::string());
  return nb::cast(kind == "choice" ? options.choice(name, text, choices) : options.text(name, text));
}

/// Converts the result of a hook to a hookline.Future. Does not import torch: a torch future implies that it is
/// imported.
nb::object as_future(nb::object result, const std::string& hook) {
  if (nb::isinstance<PyFuture>(result)) return result;
  if (nb::cast<bool>(hooks_module().attr("is_torch_future")(result))) return hooks_module().attr("from_torch")(result);
  throw InvalidArgument("hook " + hook +
                        ": DDP communication hook's callback must return a torch.futures.Future object, but got " +
                        nb::cast<std::string>(nb::module_::import_("hookline._names").attr("class_name")(result)) +
                        ". Return a hookline.Future or a torch.futures.Future of the reduced buffer.");
}

}  // namespace

nb::object PyGradBucket::array_of(const Tensor& tensor) const {
  if (!for_torch) return to_numpy(tensor);
  return nb::module_::import_("torch").attr("from_dlpack")(tensor);
}

nb::object PyGradBucket::get_buffer() {
  if (!buffer.is_valid()) buffer = array_of(bucket.buffer());
  return buffer;
}

PythonCommHook::PythonCommHook(nb::object state, nb::object hook, std::string name, bool for_torch,
                               bool reports_contribution, int ranks)
    : CommHookInterface({.name = std::move(name), .may_block = true, .reports_contribution = reports_contribution}),
      state_(std::move(state)),
      function_(std::move(hook)),
      for_torch_(for_torch),
      ranks_(ranks) {}

// Measures the sent bytes as the growth of the context's counter, which counts only this bucket's operations meanwhile.
Future<HookResult> PythonCommHook::run_hook(GradBucket& bucket) {
  CallContext context = current_context();
  if (!context.bytes_sent) context.bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  const auto record_stats = [costs = stats_, counter = context.bytes_sent, before = context.bytes_sent->load(),
                             index = bucket.index(), values = static_cast<std::uint64_t>(bucket.buffer().numel()),
                             bytes = bucket.buffer().nbytes(), ranks = static_cast<std::uint64_t>(ranks_)] {
    HookStats stats{.bucket = index, .values = values, .bytes_sent = counter->load() - before};
    const std::uint64_t allreduce_bytes = 2 * (ranks - 1) * bytes / ranks;
    if (stats.bytes_sent > 0)
      stats.ratio = static_cast<double>(allreduce_bytes) / static_cast<double>(stats.bytes_sent);
    const std::lock_guard lock(costs->mutex);
    costs->by_bucket[index] = stats;
  };
  const ContextScope scope(std::move(context));
  return call_python("calling hook " + name(), [&] {
    const nb::object argument = nb::cast(PyGradBucket{bucket, nb::object(), for_torch_});
    const nb::object result = function_.object()(state_.object(), argument);
    const Future<PyRef> outcome = share_future(as_future(result, name()));
    return outcome.then([record_stats](const Future<PyRef>& done) {
      record_stats();
      return HookResult::opaque(done.value());
    });
  });
}

std::vector<HookStats> PythonCommHook::stats() const {
  const std::lock_guard lock(stats_->mutex);
  std::vector<HookStats> all;
  all.reserve(stats_->by_bucket.size());
  for (const auto& [index, stats] : stats_->by_bucket) all.push_back(stats);
  return all;
}

void PythonCommHook::save(StateWriter& to) const {
  call_python("saving the state of hook " + name(), [&] {
    const nb::object hook = function_.object();
    if (!nb::hasattr(hook, "state_dict")) return;
    const auto bytes = nb::cast<nb::bytes>(state_module().attr("encode")(hook.attr("state_dict")()));
    to.text(std::string_view(bytes.c_str(), bytes.size()));
  });
}

void PythonCommHook::load(StateReader& from) {
  call_python("loading the state of hook " + name(), [&] {
    const nb::object hook = function_.object();
    if (!nb::hasattr(hook, "load_state_dict")) return;
    const std::string state = from.text();
    hook.attr("load_state_dict")(state_module().attr("decode")(nb::bytes(state.data(), state.size())));
  });
}

Tensor PythonCommHook::parse_hook_result(const HookResult& result) {
  const auto* reference = result.opaque_as<PyRef>();
  if (!reference) throw InvalidArgument("hook " + name() + ": expected the result of a Python hook");
  return call_python("reading the result of hook " + name(), [&] {
    nb::object object = reference->object();
    if ((PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) && nb::len(object) == 1) object = object[0];
    if (object.is_none() || PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
      throw InvalidArgument("hook " + name() + ": result: expected one array with the bucket's size and dtype, got " +
                            (object.is_none() ? "None" : "a list of " + std::to_string(nb::len(object))));
    }
    return to_tensor(object);
  });
}

HookConstructionScope::HookConstructionScope(bool torch) noexcept
    : for_torch(torch), outer_(std::exchange(construction_scope, this)) {}
HookConstructionScope::~HookConstructionScope() { construction_scope = outer_; }

HookPtr make_registered_hook(const std::string& name, const std::shared_ptr<ProcessGroup>& group,
                             HookOptions& options) {
  return call_python("creating hook " + name, [&]() -> HookPtr {
    const nb::object registered = hooks_module().attr("factory_of")(name);
    nb::dict values;
    for (nb::handle option : registered.attr("options")) {
      const auto key = nb::cast<std::string>(option.attr("name"));
      values[key.c_str()] = option_of(options, key, nb::cast<std::string>(option.attr("kind")), option.attr("default"),
                                      nb::cast<std::vector<std::string>>(option.attr("choices")));
    }
    if (options.listing()) return nullptr;
    options.check_all_known();  // before the factory, which may communicate
    const nb::object result = registered.attr("make")(untracked(group), values);
    if (nb::isinstance<PyHook>(result)) {
      if (construction_scope) construction_scope->references.hooks.push_back(result);
      return hook_of(result);
    }
    return make_python_hook(nb::cast(untracked(group)), result, name,
                            nb::cast<bool>(registered.attr("reports_contribution")), group->size());
  });
}

nb::object make_hook_object(nb::handle state, nb::handle hook, const std::shared_ptr<ProcessGroup>& group,
                            bool for_torch, bool reports_contribution) {
  if (nb::isinstance<PyHook>(hook)) return nb::borrow(hook);
  GroupRefs group_refs;
  const std::shared_ptr<ProcessGroup> tracked_group = group_refs.track(group);
  if (hook.is_none())
    return nb::cast(PyHook{std::make_shared<AllreduceHook>(tracked_group), tracked_group, {}, std::move(group_refs)});
  HookConstructionScope scope(for_torch);
  HookPtr hook_ptr;
  if (PyUnicode_Check(hook.ptr())) {
    const std::string text = nb::str(hook).c_str();
    hook_ptr = without_gil([&] { return make_hook(text, tracked_group); });  // may communicate with other ranks
  } else {
    nb::object native = hooks_module().attr("native_hook")(state, hook, untracked(tracked_group));
    if (!native.is_none()) return native;
    std::string name = nb::cast<std::string>(hooks_module().attr("check_hook")(hook));
    hook_ptr = make_python_hook(nb::borrow(state), nb::borrow(hook), std::move(name), reports_contribution,
                                tracked_group->size());
  }
  return nb::cast(PyHook{std::move(hook_ptr), tracked_group, std::move(scope.references), std::move(group_refs)});
}

HookPtr hook_of(nb::handle object) { return nb::inst_ptr<PyHook>(object)->hook; }

HookPtr owning_hook(nb::handle object) {
  const PyHook& py_hook = *nb::inst_ptr<PyHook>(object);
  if (py_hook.references.empty() && py_hook.group_refs.empty()) return py_hook.hook;
  return {py_hook.hook.get(), [hook = py_hook.hook, kept = PyRef(nb::borrow(object))](CommHookInterface*) {}};
}

}  // namespace hookline::python
