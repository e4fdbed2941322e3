// Calling a Python hook, and reading what it returned.
#include "py_hook.hpp"

#include <any>
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

#include "natively.hpp"
#include "py_error.hpp"
#include "py_future.hpp"
#include "tensor_export.hpp"
#include "tensor_import.hpp"

namespace hookline::python {
namespace {

nb::object helpers() { return nb::module_::import_("hookline._hooks"); }

thread_local MakingScope* making = nullptr;

HookPtr python_hook(nb::object state, nb::object function, std::string name, bool reports_contribution, int ranks) {
  auto hook = std::make_shared<PythonCommHook>(std::move(state), std::move(function), std::move(name),
                                               making && making->for_torch, reports_contribution, ranks);
  if (making) making->parts.functions.push_back(hook);
  return hook;
}

/// The value of an option in the type that the factory's signature gives it. Without a default it is None.
nb::object option_of(HookOptions& options, const std::string& name, const std::string& kind, nb::handle otherwise,
                     const std::vector<std::string>& words) {
  const bool none = otherwise.is_none();
  const char* const expected = kind == "integer" ? "an integer" : kind == "number" ? "a number" : "a string";
  if (none && options.text(name, "", expected).empty()) return nb::none();
  const auto or_else = [&]<class T>(const T& value) { return none ? value : nb::cast<T>(otherwise); };
  if (kind == "integer") return nb::int_(options.integer(name, or_else(std::int64_t{0})));
  if (kind == "number") return nb::float_(options.number(name, or_else(0.0)));
  if (kind == "boolean") return nb::bool_(options.boolean(name, or_else(false)));
  const std::string text = or_else(std::string());
  return nb::cast(kind == "word" ? options.word(name, text, words) : options.text(name, text));
}

/// A hookline.Future of what the hook returned. Torch is not imported for this: who has none of it returns none.
nb::object as_future(nb::object returned, const std::string& hook) {
  if (nb::isinstance<PyFuture>(returned)) return returned;
  if (nb::cast<bool>(helpers().attr("is_torch_future")(returned))) return helpers().attr("from_torch")(returned);
  throw InvalidArgument("the hook " + hook +
                        ": DDP communication hook's callback must return a torch.futures.Future object, but got " +
                        nb::cast<std::string>(nb::module_::import_("hookline._names").attr("class_name")(returned)) +
                        "; return a hookline.Future or a torch.futures.Future of the reduced buffer");
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

// The bytes that the hook's operations add to the counter of its bucket, which runs nothing else meanwhile.
Future<HookResult> PythonCommHook::run_hook(GradBucket& bucket) {
  CallContext context = current_context();
  if (!context.sent) context.sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  const auto note = [costs = costs_, counter = context.sent, before = context.sent->load(), index = bucket.index(),
                     values = static_cast<std::uint64_t>(bucket.buffer().numel()), bytes = bucket.buffer().nbytes(),
                     ranks = static_cast<std::uint64_t>(ranks_)] {
    HookCost cost{.bucket = index, .values = values, .sent_bytes = counter->load() - before};
    const std::uint64_t exact = 2 * (ranks - 1) * bytes / ranks;
    if (cost.sent_bytes > 0) cost.ratio = static_cast<double>(exact) / static_cast<double>(cost.sent_bytes);
    const std::lock_guard lock(costs->mutex);
    costs->by_bucket[index] = cost;
  };
  const ContextScope scope(std::move(context));
  return in_python("the hook " + name() + " was not called", [&] {
    const nb::object argument = nb::cast(PyGradBucket{bucket, nb::object(), for_torch_});
    const nb::object returned = function_.object()(state_.object(), argument);
    const Future<PyRef> outcome = share_future(as_future(returned, name()));
    return outcome.then([note](const Future<PyRef>& done) {
      note();
      return HookResult(done.value());
    });
  });
}

std::vector<HookCost> PythonCommHook::costs() const {
  const std::lock_guard lock(costs_->mutex);
  std::vector<HookCost> all;
  all.reserve(costs_->by_bucket.size());
  for (const auto& [index, cost] : costs_->by_bucket) all.push_back(cost);
  return all;
}

void PythonCommHook::save(StateWriter& to) const {
  in_python("the state of the hook " + name() + " was not saved", [&] {
    const nb::object hook = function_.object();
    if (!nb::hasattr(hook, "save")) return;
    const nb::object state = hook.attr("save")();
    if (!PyBytes_Check(state.ptr())) {
      throw InvalidArgument("save() of the hook " + name() + ": expected bytes, got " +
                            nb::type_name(state.type()).c_str());
    }
    const auto bytes = nb::cast<nb::bytes>(state);
    to.text(std::string_view(bytes.c_str(), bytes.size()));
  });
}

void PythonCommHook::load(StateReader& from) {
  in_python("the state of the hook " + name() + " was not loaded", [&] {
    const nb::object hook = function_.object();
    if (!nb::hasattr(hook, "load")) return;
    const std::string state = from.text();
    hook.attr("load")(nb::bytes(state.data(), state.size()));
  });
}

Tensor PythonCommHook::parse_hook_result(const HookResult& result) {
  const auto* reference = std::any_cast<PyRef>(&result);
  if (!reference) throw InvalidArgument("the result of the hook " + name() + " is not one of Python's");
  return in_python("the result of the hook " + name() + " was not read", [&] {
    nb::object object = reference->object();
    if ((PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) && nb::len(object) == 1) object = object[0];
    if (object.is_none() || PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
      throw InvalidArgument("the Future of the hook " + name() + " carried " +
                            (object.is_none() ? "None" : "a list of " + std::to_string(nb::len(object))) +
                            "; it must carry one array, of the bucket's size and dtype");
    }
    return to_tensor(object);
  });
}

MakingScope::MakingScope(bool torch) noexcept : for_torch(torch), before_(std::exchange(making, this)) {}
MakingScope::~MakingScope() { making = before_; }

HookPtr make_registered(const std::string& name, const std::shared_ptr<ProcessGroup>& group, HookOptions& options) {
  return in_python("the hook " + name + " was not made", [&]() -> HookPtr {
    const nb::object registered = helpers().attr("registered")(name);
    nb::dict values;
    for (nb::handle option : registered.attr("options")) {
      const auto key = nb::cast<std::string>(option.attr("name"));
      values[key.c_str()] = option_of(options, key, nb::cast<std::string>(option.attr("kind")), option.attr("default"),
                                      nb::cast<std::vector<std::string>>(option.attr("words")));
    }
    if (options.listing()) return nullptr;
    options.check_all_known();  // before the factory, which may communicate
    const nb::object made = registered.attr("make")(for_python(group), values);
    if (nb::isinstance<PyHook>(made)) {
      if (making) making->parts.hooks.push_back(made);
      return hook_in(made);
    }
    return python_hook(nb::cast(for_python(group)), made, name, nb::cast<bool>(registered.attr("reports_contribution")),
                       group->size());
  });
}

nb::object hook_object_of(nb::handle state, nb::handle hook, const std::shared_ptr<ProcessGroup>& group, bool for_torch,
                          bool reports_contribution) {
  if (nb::isinstance<PyHook>(hook)) return nb::borrow(hook);
  GroupHold hold;
  const std::shared_ptr<ProcessGroup> held = hold.hold(group);
  if (hook.is_none()) return nb::cast(PyHook{std::make_shared<AllreduceHook>(held), held, {}, std::move(hold)});
  MakingScope scope(for_torch);
  HookPtr made;
  if (PyUnicode_Check(hook.ptr())) {
    const std::string text = nb::str(hook).c_str();
    made = natively([&] { return make_hook(text, held); });  // the ranks may have to talk to each other
  } else {
    nb::object native = helpers().attr("native_hook")(state, hook, for_python(held));
    if (!native.is_none()) return native;
    std::string name = nb::cast<std::string>(helpers().attr("check_hook")(hook));
    made = python_hook(nb::borrow(state), nb::borrow(hook), std::move(name), reports_contribution, held->size());
  }
  return nb::cast(PyHook{std::move(made), held, std::move(scope.parts), std::move(hold)});
}

HookPtr hook_in(nb::handle object) { return nb::inst_ptr<PyHook>(object)->hook; }

HookPtr shared_hook(nb::handle object) {
  const PyHook& own = *nb::inst_ptr<PyHook>(object);
  if (own.parts.empty() && own.hold.empty()) return own.hook;
  return {own.hook.get(), [hook = own.hook, kept = PyRef(nb::borrow(object))](CommHookInterface*) {}};
}

}  // namespace hookline::python
