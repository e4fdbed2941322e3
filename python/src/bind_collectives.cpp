// Binds the collectives: each call becomes an Operation, which is started without the GIL.
#include "bind_collectives.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>

#include "call_args.hpp"
#include "gil_release.hpp"
#include "group_options.hpp"
#include "py_group.hpp"
#include "py_process_group.hpp"
#include "tensor_list.hpp"
#include "timeout_arg.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

using nb::arg;
using nb::handle;
using Splits = std::vector<std::int64_t>;

/// The arguments of a call from Python.
struct PythonCall {
  OpType type;
  TensorList outputs = {};
  std::vector<Tensor> inputs = {};
  CallArguments arguments = {};
  const char* method = nullptr;  ///< the called name, for operations with aliases
};

/// Starts the operation of a call. `operation` has the fields that only some operations use.
WorkObject start(ProcessGroup& group, PythonCall call, Operation operation = {}) {
  operation.type = call.type;
  operation.inputs = std::move(call.inputs);
  operation.outputs = std::move(call.outputs.tensors);
  call.arguments.apply_to(operation);
  WorkObject result{nullptr, nb::find(group), std::move(call.outputs.objects), {}, {}};
  if (PyProcessGroup* const python = as_python_group(group)) {
    python->throw_if_super_call(call.method ? call.method : name(operation.type).data());
    result.work = python->run(std::move(operation));
    return result;
  }
  const GilRelease released;
  result.work = group.run(std::move(operation));
  return result;
}

TensorList single_tensor(handle object, std::string_view operation) {
  TensorList tensors = tensors_of(object);
  if (tensors.tensors.size() == 1) return tensors;
  throw InvalidArgument(std::string(operation) + ": expected one tensor, got " +
                        std::to_string(tensors.tensors.size()));
}

/// Starts an allreduce that sends values encoded by a codec.
WorkObject allreduce_encoded(ProcessGroup& group, handle object, const CallArguments& arguments, handle codec) {
  TensorList tensors = single_tensor(object, "allreduce with a codec");
  std::shared_ptr<Codec> given_codec;
  if (!PyUnicode_Check(codec.ptr()) && !nb::try_cast(codec, given_codec)) {
    throw nb::type_error("allreduce: codec: expected a hookline.Codec or a codec spec");
  }
  CodecPtr codec_ptr = given_codec ? CodecPtr(std::move(given_codec)) : make_codec(nb::str(codec).c_str());
  Operation operation;
  arguments.apply_to(operation);
  WorkObject result{nullptr, nb::find(group), std::move(tensors.objects), {}, {}};
  const GilRelease released;
  result.work =
      group.allreduce(tensors.tensors[0], std::move(codec_ptr), {.op = operation.op, .timeout = operation.timeout});
  return result;
}

/// Starts an allgather of several inputs. `output_lists` has one list per rank, each with one array per input.
WorkObject allgather_coalesced(ProcessGroup& group, handle output_lists, handle inputs,
                               const CallArguments& arguments) {
  PythonCall call{.type = OpType::allgather_coalesced, .inputs = tensors_of(inputs).tensors, .arguments = arguments};
  for (const handle item : nb::borrow<nb::object>(output_lists)) {
    const TensorList rank_outputs = tensors_of(item);
    if (rank_outputs.tensors.size() != call.inputs.size()) {
      throw InvalidArgument("allgather_coalesced: expected " + std::to_string(call.inputs.size()) +
                            " tensors in each output list, one per input, got " +
                            std::to_string(rank_outputs.tensors.size()));
    }
    for (const handle object : rank_outputs.objects) call.outputs.add(object);
  }
  return start(group, std::move(call));
}

WorkObject point_to_point(ProcessGroup& group, OpType type, handle object, int peer, int tag, handle timeout) {
  TensorList tensors = single_tensor(object, name(type));
  PythonCall call{.type = type};
  if (type == OpType::send) call.inputs = std::move(tensors.tensors);
  else call.outputs = std::move(tensors);
  Operation c;
  CallArguments{.timeout = timeout}.apply_to(c);
  c.root = peer;  // overrides the root of an option object
  c.tag = tag;
  return start(group, std::move(call), std::move(c));
}

/// An optional argument.
auto optional_arg(const char* name) { return arg(name) = nb::none(); }

using ArgReader = TensorList (*)(handle);

/// Defines an operation with separate outputs and inputs, and without a reduction.
template <class Out, class In>
void def_data_movement(GroupClass& group, const char* name, const char* outputs, const char* inputs, OpType type,
                       ArgReader read_outputs, const char* doc) {
  group.def(
      name,
      [type, read_outputs, name](ProcessGroup& g, Out out, In in, RawTimeoutArg timeout, OptsArg opts) {
        return start(g, {type, read_outputs(out), tensors_of(in).tensors, {.timeout = timeout, .opts = opts}, name});
      },
      arg(outputs), arg(inputs), optional_arg("timeout"), optional_arg("opts"), doc);
}

void def_rooted(GroupClass& group, const char* name, OpType type, const char* doc) {
  group.def(
      name,
      [type](ProcessGroup& g, RootArraysArg out, RootArraysArg in, RootArg root, RawTimeoutArg timeout, OptsArg opts) {
        const CallArguments arguments{.root = root, .timeout = timeout, .opts = opts};
        return start(g, {type, tensors_of_nested(out), tensors_of_nested(in).tensors, arguments});
      },
      arg("outputs").none(), arg("inputs").none(), optional_arg("root"), optional_arg("timeout"), optional_arg("opts"),
      doc);
}

/// Defines a reduce_scatter operation.
template <class Out, class In>
void def_reduce_scatter(GroupClass& group, const char* name, const char* outputs, const char* inputs, OpType type,
                        ArgReader read_inputs, const char* doc) {
  group.def(
      name,
      [type, read_inputs, name](ProcessGroup& g, Out out, In in, OpArg op, RawTimeoutArg timeout, OptsArg opts) {
        const CallArguments arguments{.op = op, .timeout = timeout, .opts = opts};
        return start(g, {type, tensors_of(out), read_inputs(in).tensors, arguments, name});
      },
      arg(outputs), arg(inputs), optional_arg("op"), optional_arg("timeout"), optional_arg("opts"), doc);
}

void bind_gathers_and_scatters(GroupClass& group) {
  def_data_movement<ArrayListsArg, ArraysArg>(
      group, "allgather", "output_lists", "inputs", OpType::allgather, &tensors_of_nested,
      "Gathers the inputs of all ranks. Outputs are a list of size() arrays, possibly in a list.");
  for (const char* name : {"allgather_into_tensor", "_allgather_base", "all_gather_single"}) {
    def_data_movement<ArrayArg, ArrayArg>(group, name, "output", "input", OpType::allgather_into_tensor, &tensors_of,
                                          "Gathers the inputs of all ranks into one output of size() blocks.");
  }
  for (const char* name : {"allgather_into_tensor_coalesced", "all_gather_single_coalesced"}) {
    def_data_movement<ArraysArg, ArraysArg>(group, name, "outputs", "inputs", OpType::allgather_into_tensor_coalesced,
                                            &tensors_of, "Runs several allgather_into_tensor operations as one.");
  }
  group.def(
      "allgather_coalesced",
      [](ProcessGroup& g, ArrayListsArg out, ArraysArg in, RawTimeoutArg timeout, OptsArg opts) {
        return allgather_coalesced(g, out, in, {.timeout = timeout, .opts = opts});
      },
      arg("output_lists"), arg("inputs"), optional_arg("timeout"), optional_arg("opts"),
      "Gathers several inputs at once. Outputs are one list per rank, with one array per input.");
  def_rooted(group, "gather", OpType::gather,
             "Gathers the inputs of all ranks on the root. Other ranks pass None or [] as outputs.");
  def_rooted(group, "scatter", OpType::scatter,
             "Scatters the inputs of the root to all ranks. Other ranks pass None or [] as inputs.");
  def_reduce_scatter<ArraysArg, ArrayListsArg>(group, "reduce_scatter", "outputs", "input_lists",
                                               OpType::reduce_scatter, &tensors_of_nested,
                                               "Reduces, and scatters the result. Inputs are a list of size() arrays, "
                                               "possibly in a list.");
  for (const char* name : {"reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter_single"}) {
    def_reduce_scatter<ArrayArg, ArrayArg>(group, name, "output", "input", OpType::reduce_scatter_tensor, &tensors_of,
                                           "Reduces an input of size() blocks, and scatters the blocks of the result.");
  }
  for (const char* name : {"reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"}) {
    def_reduce_scatter<ArraysArg, ArraysArg>(group, name, "outputs", "inputs", OpType::reduce_scatter_tensor_coalesced,
                                             &tensors_of, "Runs several reduce_scatter_tensor operations as one.");
  }
}

void bind_point_to_point_and_barriers(GroupClass& group) {
  group
      .def(
          "send",
          [](ProcessGroup& g, ArraysArg tensors, int dst, int tag, RawTimeoutArg timeout) {
            return point_to_point(g, OpType::send, tensors, dst, tag, timeout);
          },
          arg("tensors"), arg("dst"), arg("tag") = 0, optional_arg("timeout"),
          "Sends to rank dst. Messages match by peer, tag and order, independently of collectives.")
      .def(
          "recv",
          [](ProcessGroup& g, ArraysArg tensors, int src, int tag, RawTimeoutArg timeout) {
            return point_to_point(g, OpType::recv, tensors, src, tag, timeout);
          },
          arg("tensors"), arg("src"), arg("tag") = 0, optional_arg("timeout"),
          "Receives from rank src with this tag into the arrays.")
      .def(
          "recv_anysource",
          [](ProcessGroup& g, ArraysArg tensors, int tag, RawTimeoutArg timeout) {
            return point_to_point(g, OpType::recv_anysource, tensors, kAnySource, tag, timeout);
          },
          arg("tensors"), arg("tag") = 0, optional_arg("timeout"),
          "Receives from any rank with this tag. Work.source_rank() returns the sender.")
      .def(
          "barrier",
          [](ProcessGroup& g, RawTimeoutArg timeout, OptsArg opts) {
            return start(g, {.type = OpType::barrier, .arguments = {.timeout = timeout, .opts = opts}});
          },
          optional_arg("timeout"), optional_arg("opts"), "Completes when all ranks have called it.")
      .def(
          "monitored_barrier",
          [](ProcessGroup& g, RawTimeoutArg timeout, bool wait_all_ranks) {
            Operation operation;
            operation.wait_all_ranks = wait_all_ranks;
            const WorkObject work =
                start(g, {.type = OpType::monitored_barrier, .arguments = {.timeout = timeout}}, operation);
            without_gil([&] { work.work->wait(); });
          },
          optional_arg("timeout"), arg("wait_all_ranks") = false,
          "A blocking barrier whose error names the first missing rank; with wait_all_ranks, all missing ranks.");
}

}  // namespace

void bind_collectives(GroupClass& group) {
  group.def(
      "allreduce",
      [](ProcessGroup& g, ArraysArg tensors, OpArg op, RawTimeoutArg timeout, OptsArg opts, CodecArg codec) {
        const CallArguments arguments{.op = op, .timeout = timeout, .opts = opts};
        if (!codec.object.is_none()) return allreduce_encoded(g, tensors, arguments, codec);
        return start(g, {.type = OpType::allreduce, .outputs = tensors_of(tensors), .arguments = arguments});
      },
      arg("tensors"), optional_arg("op"), optional_arg("timeout"), optional_arg("opts"), optional_arg("codec"),
      "Reduces in place on all ranks; the default op is ReduceOp.SUM. With a codec or its spec, ranks send encoded "
      "values.");
  group
      .def(
          "allreduce_coalesced",
          [](ProcessGroup& g, ArraysArg tensors, OpArg op, RawTimeoutArg timeout, OptsArg opts) {
            return start(g, {.type = OpType::allreduce_coalesced,
                             .outputs = tensors_of(tensors),
                             .arguments = {.op = op, .timeout = timeout, .opts = opts}});
          },
          arg("tensors"), optional_arg("op"), optional_arg("timeout"), optional_arg("opts"),
          "Reduces several arrays as one operation.")
      .def(
          "reduce",
          [](ProcessGroup& g, ArraysArg tensors, RootArg root, OpArg op, RawTimeoutArg timeout, OptsArg opts) {
            return start(g, {.type = OpType::reduce,
                             .outputs = single_tensor(tensors, "reduce"),
                             .arguments = {.op = op, .root = root, .timeout = timeout, .opts = opts}});
          },
          arg("tensors"), optional_arg("root"), optional_arg("op"), optional_arg("timeout"), optional_arg("opts"),
          "Reduces in place on the root, by default rank 0.")
      .def(
          "broadcast",
          [](ProcessGroup& g, ArraysArg tensors, RootArg root, RawTimeoutArg timeout, OptsArg opts) {
            return start(g, {.type = OpType::broadcast,
                             .outputs = single_tensor(tensors, "broadcast"),
                             .arguments = {.root = root, .timeout = timeout, .opts = opts}});
          },
          arg("tensors"), optional_arg("root"), optional_arg("timeout"), optional_arg("opts"),
          "Broadcasts from the root, by default rank 0, to all ranks.");
  bind_gathers_and_scatters(group);
  def_data_movement<ArraysArg, ArraysArg>(group, "alltoall", "outputs", "inputs", OpType::alltoall, &tensors_of,
                                          "Sends one array to each rank and receives one from each rank.");
  for (const char* name : {"alltoall_base", "all_to_all_single"}) {
    group.def(
        name,
        [name](ProcessGroup& g, ArrayArg out, ArrayArg in, std::optional<Splits> out_splits,
               std::optional<Splits> in_splits, RawTimeoutArg timeout, OptsArg opts) {
          Operation c;
          c.output_splits = std::move(out_splits).value_or(Splits());
          c.input_splits = std::move(in_splits).value_or(Splits());
          const CallArguments arguments{.timeout = timeout, .opts = opts};
          return start(g, {OpType::alltoall_base, tensors_of(out), tensors_of(in).tensors, arguments, name},
                       std::move(c));
        },
        arg("output"), arg("input"), optional_arg("output_split_sizes"), optional_arg("input_split_sizes"),
        optional_arg("timeout"), optional_arg("opts"),
        "Exchanges blocks with all ranks. Split sizes are rows of dimension 0 per rank; without them all blocks are "
        "equal.");
  }
  bind_point_to_point_and_barriers(group);
}

}  // namespace hookline::python
