// Binds ReduceOp and the option objects, and parses the options of a call.
#include <array>
#include <cctype>
#include <string>
#include <utility>

#include <nanobind/operators.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>

#include "bindings.hpp"
#include "call_args.hpp"
#include "group_options.hpp"
#include "timeout_arg.hpp"

namespace hookline::python {
namespace {

// Distinct types, because nanobind identifies classes by their C++ types.
struct AllreduceOptionsObject : CallOptions {};
struct ReduceOptionsObject : CallOptions {};
struct BroadcastOptionsObject : CallOptions {};
struct AllgatherOptionsObject : CallOptions {};
struct GatherOptionsObject : CallOptions {};
struct ScatterOptionsObject : CallOptions {};
struct ReduceScatterOptionsObject : CallOptions {};
struct AllToAllOptionsObject : CallOptions {};
struct BarrierOptionsObject : CallOptions {};

constexpr std::array<std::pair<const char*, ReduceOp>, 8> kOps = {{{"SUM", ReduceOp::sum},
                                                                   {"AVG", ReduceOp::avg},
                                                                   {"PRODUCT", ReduceOp::product},
                                                                   {"MIN", ReduceOp::min},
                                                                   {"MAX", ReduceOp::max},
                                                                   {"BAND", ReduceOp::band},
                                                                   {"BOR", ReduceOp::bor},
                                                                   {"BXOR", ReduceOp::bxor}}};

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

/// Parses a ReduceOp, or its name in any case.
ReduceOp parse_reduce_op(nb::handle value, const char* argument) {
  ReduceOp op;
  if (nb::try_cast(value, op)) return op;
  if (!PyUnicode_Check(value.ptr())) {
    throw nb::type_error((std::string(argument) + ": expected a hookline.ReduceOp or its name, got " +
                          nb::type_name(value.type()).c_str())
                             .c_str());
  }
  const auto text = nb::cast<std::string>(value);
  std::string names;
  for (const auto& [name, known] : kOps) {
    if (upper(text) == name) return known;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw InvalidArgument(std::string(argument) + ": expected one of " + names +
                        " in any case, or ReduceOp.PREMUL_SUM(factor), got '" + text + "'");
}

struct ReduceOpArg : CallArg {
  static constexpr auto kType = nanobind::detail::const_name("ReduceOp | str");
};

/// A member of CallOptions, bound as a Python attribute with torch's name. Its setter takes an `Arg`.
template <class V, class Arg = V>
struct Option {
  using Argument = Arg;
  const char* name;
  V CallOptions::* member;

  V value(const Argument& argument) const {
    if constexpr (std::is_same_v<Argument, V>) return argument;
    else return parse_reduce_op(argument, name);
  }
};
constexpr Option<ReduceOp, ReduceOpArg> kOp{"reduceOp", &CallOptions::op};
constexpr Option<int> kRoot{"rootRank", &CallOptions::root};
constexpr Option<int> kRootTensor{"rootTensor", &CallOptions::root_tensor};

template <class T, class... Options>
void bind_options(nb::module_& m, const char* name, Options... options) {
  nb::class_<T, CallOptions> type(m, name,
                                  "The options of an operation as in torch.distributed, passed as `opts` instead of "
                                  "keywords.");
  type.def_prop_rw(
      "timeout", [](const T& o) { return o.timeout; },
      [](T& o, std::optional<TimeoutArg> timeout) { o.timeout = timeout; }, nb::for_setter(nb::arg("timeout").none()),
      "The timeout; None for the group's default.");
  type.def(
      "__init__",
      [options...](T* self, typename Options::Argument... values, std::optional<TimeoutArg> timeout) {
        new (self) T{{.timeout = timeout}};
        ((self->*options.member = options.value(values)), ...);
      },
      (nb::arg(options.name) = T().*options.member)..., nb::arg("timeout") = nb::none());
  (type.def_prop_rw(
       options.name, [options](const T& o) { return o.*options.member; },
       [options](T& o, typename Options::Argument value) { o.*options.member = options.value(value); }),
   ...);
}

std::string repr(ReduceOp op) {
  std::string text = upper(name(op));
  if (op.kind() == ReduceOp::Kind::premul_sum) {
    text.append("(").append(nb::repr(nb::float_(op.factor())).c_str()).append(")");
  }
  return "ReduceOp." + text;
}

// The constants are attributes of their own class: a cycle that the garbage collector must see.
int traverse_reduce_op(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return 0;
}

PyType_Slot reduce_op_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_reduce_op)}, {0, nullptr}};

void bind_reduce_op(nb::module_& m) {
  nb::class_<ReduceOp> type(m, "ReduceOp", nb::type_slots(reduce_op_slots),
                            "The operation with which a reduction combines elements.");
  type.def_prop_ro(
          "name", [](ReduceOp op) { return std::string(name(op)); },
          "The name as in C++, such as \"sum\" or \"premul_sum\".")
      .def_prop_ro("factor", &ReduceOp::factor, "The factor of PREMUL_SUM; 1 for other ops.")
      .def_static("PREMUL_SUM", &ReduceOp::premul_sum, nb::arg("factor"),
                  "Returns an op that multiplies each rank's elements by the factor, then sums. Floating-point dtypes "
                  "only.")
      .def(
          "__eq__", [](ReduceOp a, nb::handle b) { return nb::isinstance<ReduceOp>(b) && a == nb::cast<ReduceOp>(b); },
          nb::arg("other").none())
      .def("__hash__", [](ReduceOp op) { return nb::hash(nb::make_tuple(static_cast<int>(op.kind()), op.factor())); })
      .def("__repr__", &repr);
  for (const auto& [name, op] : kOps) type.attr(name) = op;
}

template <class T>
T cast_argument(nb::handle object, const char* name, const char* expected) {
  T value{};
  if (nb::try_cast(object, value)) return value;
  const std::string type = nb::type_name(object.type()).c_str();
  throw nb::type_error((std::string(name) + ": expected " + expected + ", got " + type).c_str());
}

}  // namespace

void CallArguments::apply_to(Operation& collective) const {
  const auto is_given = [](nb::handle h) { return h.is_valid() && !h.is_none(); };
  const auto is_options = [](nb::handle h) { return nb::isinstance<CallOptions>(h); };
  bool all_defaults = true;
  for (const nb::handle h : {op, root, timeout, opts}) {
    if (!is_given(h)) continue;
    all_defaults = false;
    if (!is_options(h)) continue;
    const auto& options = *nb::inst_ptr<CallOptions>(h);
    if (options.root_tensor != 0) {
      throw InvalidArgument("rootTensor: expected 0, since each rank has one tensor, got " +
                            std::to_string(options.root_tensor));
    }
    collective.op = options.op;
    collective.root = options.root;
    collective.timeout = options.timeout;
  }
  if (all_defaults) return;
  if (is_given(op) && !is_options(op)) collective.op = parse_reduce_op(op, "op");
  if (is_given(root) && !is_options(root)) collective.root = cast_argument<int>(root, "root", "a rank");
  if (is_given(timeout) && !is_options(timeout)) {
    collective.timeout = cast_argument<TimeoutArg>(timeout, "timeout", "seconds or a timedelta");
  }
  if (is_given(opts) && !is_options(opts)) {
    throw nb::type_error("opts: expected an option object such as hookline.AllreduceOptions()");
  }
}

nb::object options_object(const Operation& c) {
  const CallOptions options{.op = c.op, .root = c.root, .timeout = c.timeout};
  switch (c.type) {
    case OpType::reduce: return nb::cast(ReduceOptionsObject{options});
    case OpType::broadcast: return nb::cast(BroadcastOptionsObject{options});
    case OpType::gather: return nb::cast(GatherOptionsObject{options});
    case OpType::scatter: return nb::cast(ScatterOptionsObject{options});
    case OpType::allreduce:
    case OpType::allreduce_coalesced: return nb::cast(AllreduceOptionsObject{options});
    case OpType::reduce_scatter:
    case OpType::reduce_scatter_tensor:
    case OpType::reduce_scatter_tensor_coalesced: return nb::cast(ReduceScatterOptionsObject{options});
    case OpType::alltoall:
    case OpType::alltoall_base: return nb::cast(AllToAllOptionsObject{options});
    case OpType::barrier: return nb::cast(BarrierOptionsObject{options});
    default: return nb::cast(AllgatherOptionsObject{options});
  }
}

void bind_group_options(nb::module_& m) {
  bind_reduce_op(m);
  const nb::class_<CallOptions> base(m, "CallOptions", "The base class of the option objects of all collectives.");
  bind_options<AllreduceOptionsObject>(m, "AllreduceOptions", kOp);
  bind_options<ReduceScatterOptionsObject>(m, "ReduceScatterOptions", kOp);
  bind_options<GatherOptionsObject>(m, "GatherOptions", kRoot);
  bind_options<ScatterOptionsObject>(m, "ScatterOptions", kRoot);
  bind_options<AllgatherOptionsObject>(m, "AllgatherOptions");
  bind_options<AllToAllOptionsObject>(m, "AllToAllOptions");
  bind_options<BarrierOptionsObject>(m, "BarrierOptions");
  bind_options<ReduceOptionsObject>(m, "ReduceOptions", kOp, kRoot, kRootTensor);
  bind_options<BroadcastOptionsObject>(m, "BroadcastOptions", kRoot, kRootTensor);
}

}  // namespace hookline::python
