// Binds the collectives: each call is put into words as a Collective and started without the GIL.
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
#include "natively.hpp"
#include "py_group.hpp"
#include "py_process_group.hpp"
#include "tensor_list.hpp"
#include "timeout_arg.hpp"

namespace hookline::python {
namespace {

using nb::arg;
using nb::handle;
using Splits = std::optional<std::vector<std::int64_t>>;

/// `method` is the name under which Python called, where the operation has several.
WorkObject start(ProcessGroup& group, Collective collective, nb::object outputs, const char* method = nullptr) {
  WorkObject result{nullptr, nb::find(group), std::move(outputs), {}, {}};
  if (PyProcessGroup* const python = python_group(group)) {
    python->refuse_super(method ? method : name(collective.type).data());
    result.work = python->run(std::move(collective));
    return result;
  }
  const GilRelease released;
  result.work = group.run(std::move(collective));
  return result;
}

TensorList one_tensor(handle given, std::string_view operation) {
  TensorList tensors = tensors_of(given);
  if (tensors.tensors.size() == 1) return tensors;
  throw InvalidArgument(std::string(operation) + " takes one tensor, and " + std::to_string(tensors.tensors.size()) +
                        " were given");
}

WorkObject in_place(ProcessGroup& group, OpType type, handle given, const CallArguments& arguments) {
  const bool of_one = type == OpType::reduce || type == OpType::broadcast;
  TensorList tensors = of_one ? one_tensor(given, name(type)) : tensors_of(given);
  Collective c;
  c.type = type;
  arguments.apply_to(c);
  c.outputs = std::move(tensors.tensors);
  return start(group, std::move(c), std::move(tensors.objects));
}

/// The same for values that travel as a codec packs them.
WorkObject encoded(ProcessGroup& group, handle given, const CallArguments& arguments, handle codec) {
  TensorList tensors = one_tensor(given, "allreduce with a codec");
  CodecPtr packs = PyUnicode_Check(codec.ptr()) ? make_codec(nb::str(codec).c_str())
                                                : CodecPtr(nb::cast<std::shared_ptr<Codec>>(codec));
  Collective c;
  arguments.apply_to(c);
  WorkObject result{nullptr, nb::find(group), std::move(tensors.objects), {}, {}};
  const GilRelease released;
  result.work = group.allreduce(tensors.tensors[0], std::move(packs), {.op = c.op, .timeout = c.timeout});
  return result;
}

WorkObject apart(ProcessGroup& group, OpType type, TensorList outputs, TensorList inputs,
                 const CallArguments& arguments, const char* method = nullptr) {
  Collective c;
  c.type = type;
  arguments.apply_to(c);
  c.inputs = std::move(inputs.tensors);
  c.outputs = std::move(outputs.tensors);
  return start(group, std::move(c), std::move(outputs.objects), method);
}

/// One list for each rank, each with one array for each input.
WorkObject allgather_coalesced(ProcessGroup& group, handle output_lists, handle given, const CallArguments& arguments) {
  TensorList inputs = tensors_of(given);
  TensorList outputs;
  for (const handle item : nb::borrow<nb::object>(output_lists)) {
    const TensorList of_rank = tensors_of(item);
    if (of_rank.tensors.size() != inputs.tensors.size()) {
      throw InvalidArgument("allgather_coalesced: each output list must have as many tensors as there are inputs");
    }
    for (const handle object : of_rank.objects) outputs.add(object);
  }
  return apart(group, OpType::allgather_coalesced, std::move(outputs), std::move(inputs), arguments);
}

WorkObject alltoall_base(ProcessGroup& group, handle output, handle input, Splits output_splits, Splits input_splits,
                         const CallArguments& arguments, const char* method) {
  TensorList outputs = tensors_of(output);
  Collective c;
  c.type = OpType::alltoall_base;
  arguments.apply_to(c);
  c.inputs = tensors_of(input).tensors;
  c.outputs = std::move(outputs.tensors);
  if (output_splits) c.output_splits = std::move(*output_splits);
  if (input_splits) c.input_splits = std::move(*input_splits);
  return start(group, std::move(c), std::move(outputs.objects), method);
}

WorkObject message(ProcessGroup& group, OpType type, handle given, int peer, int tag, handle timeout) {
  TensorList tensors = one_tensor(given, name(type));
  Collective c;
  c.type = type;
  CallArguments{.timeout = timeout}.apply_to(c);
  c.root = peer;
  c.tag = tag;
  if (type == OpType::send) {
    c.inputs = std::move(tensors.tensors);
    return start(group, std::move(c), nb::list());
  }
  c.outputs = std::move(tensors.tensors);
  return start(group, std::move(c), std::move(tensors.objects));
}

WorkObject barrier(ProcessGroup& group, OpType type, handle timeout, handle opts, bool wait_all_ranks = false) {
  Collective c;
  c.type = type;
  c.wait_all_ranks = wait_all_ranks;
  CallArguments{.timeout = timeout, .opts = opts}.apply_to(c);
  return start(group, std::move(c), nb::list());
}

using Reader = TensorList (*)(handle);

/// One with outputs apart from its inputs, and no op.
template <class Out, class In>
void def_moving(GroupClass& group, const char* name, const char* outputs, const char* inputs, OpType type,
                Reader read_outputs, const char* doc) {
  group.def(
      name,
      [type, read_outputs, name](ProcessGroup& g, Out out, In in, TimeArg timeout, OptsArg opts) {
        return apart(g, type, read_outputs(out), tensors_of(in), {.timeout = timeout, .opts = opts}, name);
      },
      arg(outputs), arg(inputs), arg("timeout") = nb::none(), arg("opts") = nb::none(), doc);
}

void def_rooted(GroupClass& group, const char* name, OpType type, const char* doc) {
  group.def(
      name,
      [type](ProcessGroup& g, RootArraysArg out, RootArraysArg in, RootArg root, TimeArg timeout, OptsArg opts) {
        return apart(g, type, tensors_of_nested(out), tensors_of_nested(in),
                     {.root = root, .timeout = timeout, .opts = opts});
      },
      arg("outputs").none(), arg("inputs").none(), arg("root") = nb::none(), arg("timeout") = nb::none(),
      arg("opts") = nb::none(), doc);
}

/// The same with an op.
template <class Out, class In>
void def_scattering(GroupClass& group, const char* name, const char* outputs, const char* inputs, OpType type,
                    Reader read_inputs, const char* doc) {
  group.def(
      name,
      [type, read_inputs, name](ProcessGroup& g, Out out, In in, OpArg op, TimeArg timeout, OptsArg opts) {
        return apart(g, type, tensors_of(out), read_inputs(in), {.op = op, .timeout = timeout, .opts = opts}, name);
      },
      arg(outputs), arg(inputs), arg("op") = nb::none(), arg("timeout") = nb::none(), arg("opts") = nb::none(), doc);
}

void bind_gathers_and_scatters(GroupClass& group) {
  def_moving<ArrayListsArg, ArraysArg>(group, "allgather", "output_lists", "inputs", OpType::allgather,
                                       &tensors_of_nested, "Outputs are a list of size() arrays, or that in a list.");
  for (const char* name : {"allgather_into_tensor", "_allgather_base", "all_gather_single"}) {
    def_moving<ArrayArg, ArrayArg>(group, name, "output", "input", OpType::allgather_into_tensor, &tensors_of,
                                   "The output has as many parts along its memory as there are ranks.");
  }
  for (const char* name : {"allgather_into_tensor_coalesced", "all_gather_single_coalesced"}) {
    def_moving<ArraysArg, ArraysArg>(group, name, "outputs", "inputs", OpType::allgather_into_tensor_coalesced,
                                     &tensors_of, "Several at once.");
  }
  group.def(
      "allgather_coalesced",
      [](ProcessGroup& g, ArrayListsArg out, ArraysArg in, TimeArg timeout, OptsArg opts) {
        return allgather_coalesced(g, out, in, {.timeout = timeout, .opts = opts});
      },
      arg("output_lists"), arg("inputs"), arg("timeout") = nb::none(), arg("opts") = nb::none(),
      "Outputs are one list for each rank, with one array for each input.");
  def_rooted(group, "gather", OpType::gather, "Ranks other than the root pass no outputs: None or [].");
  def_rooted(group, "scatter", OpType::scatter, "Ranks other than the root pass no inputs: None or [].");
  def_scattering<ArraysArg, ArrayListsArg>(group, "reduce_scatter", "outputs", "input_lists", OpType::reduce_scatter,
                                           &tensors_of_nested,
                                           "Inputs are a list of size() arrays, or that in a list.");
  for (const char* name : {"reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter_single"}) {
    def_scattering<ArrayArg, ArrayArg>(group, name, "output", "input", OpType::reduce_scatter_tensor, &tensors_of,
                                       "The input has as many parts along its memory as there are ranks.");
  }
  for (const char* name : {"reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"}) {
    def_scattering<ArraysArg, ArraysArg>(group, name, "outputs", "inputs", OpType::reduce_scatter_tensor_coalesced,
                                         &tensors_of, "Several at once.");
  }
}

void bind_messages(GroupClass& group) {
  group
      .def(
          "send",
          [](ProcessGroup& g, ArraysArg tensors, int dst, int tag, TimeArg timeout) {
            return message(g, OpType::send, tensors, dst, tag, timeout);
          },
          arg("tensors"), arg("dst"), arg("tag") = 0, arg("timeout") = nb::none(),
          "Matched by peer, tag and order; outside the order of the collectives.")
      .def(
          "recv",
          [](ProcessGroup& g, ArraysArg tensors, int src, int tag, TimeArg timeout) {
            return message(g, OpType::recv, tensors, src, tag, timeout);
          },
          arg("tensors"), arg("src"), arg("tag") = 0, arg("timeout") = nb::none())
      .def(
          "recv_anysource",
          [](ProcessGroup& g, ArraysArg tensors, int tag, TimeArg timeout) {
            return message(g, OpType::recv_anysource, tensors, kAnySource, tag, timeout);
          },
          arg("tensors"), arg("tag") = 0, arg("timeout") = nb::none(), "Work.source_rank() says who sent it.")
      .def(
          "barrier",
          [](ProcessGroup& g, TimeArg timeout, OptsArg opts) { return barrier(g, OpType::barrier, timeout, opts); },
          arg("timeout") = nb::none(), arg("opts") = nb::none())
      .def(
          "monitored_barrier",
          [](ProcessGroup& g, TimeArg timeout, bool wait_all_ranks) {
            const WorkObject work = barrier(g, OpType::monitored_barrier, timeout, {}, wait_all_ranks);
            natively([&] { work.work->wait(); });
          },
          arg("timeout") = nb::none(), arg("wait_all_ranks") = false,
          "A barrier that blocks; the error names the first rank that did not come in time, or all of them.");
}

}  // namespace

void bind_collectives(GroupClass& group) {
  group.def(
      "allreduce",
      [](ProcessGroup& g, ArraysArg tensors, OpArg op, TimeArg timeout, OptsArg opts, CodecArg codec) {
        const CallArguments arguments{.op = op, .timeout = timeout, .opts = opts};
        if (codec.object.is_none()) return in_place(g, OpType::allreduce, tensors, arguments);
        return encoded(g, tensors, arguments, codec);
      },
      arg("tensors"), arg("op") = nb::none(), arg("timeout") = nb::none(), arg("opts") = nb::none(),
      arg("codec") = nb::none(),
      "In place on every rank; the op is ReduceOp.SUM where not given. With a codec, or the text of one, the values "
      "travel encoded.");
  group
      .def(
          "allreduce_coalesced",
          [](ProcessGroup& g, ArraysArg tensors, OpArg op, TimeArg timeout, OptsArg opts) {
            return in_place(g, OpType::allreduce_coalesced, tensors, {.op = op, .timeout = timeout, .opts = opts});
          },
          arg("tensors"), arg("op") = nb::none(), arg("timeout") = nb::none(), arg("opts") = nb::none(),
          "The same of several arrays at once.")
      .def(
          "reduce",
          [](ProcessGroup& g, ArraysArg tensors, RootArg root, OpArg op, TimeArg timeout, OptsArg opts) {
            return in_place(g, OpType::reduce, tensors, {.op = op, .root = root, .timeout = timeout, .opts = opts});
          },
          arg("tensors"), arg("root") = nb::none(), arg("op") = nb::none(), arg("timeout") = nb::none(),
          arg("opts") = nb::none(), "In place at the root, rank 0 where not given.")
      .def(
          "broadcast",
          [](ProcessGroup& g, ArraysArg tensors, RootArg root, TimeArg timeout, OptsArg opts) {
            return in_place(g, OpType::broadcast, tensors, {.root = root, .timeout = timeout, .opts = opts});
          },
          arg("tensors"), arg("root") = nb::none(), arg("timeout") = nb::none(), arg("opts") = nb::none(),
          "From the root, rank 0 where not given, to all.");
  bind_gathers_and_scatters(group);
  def_moving<ArraysArg, ArraysArg>(group, "alltoall", "outputs", "inputs", OpType::alltoall, &tensors_of,
                                   "One array for each rank, both ways.");
  for (const char* name : {"alltoall_base", "all_to_all_single"}) {
    group.def(
        name,
        [name](ProcessGroup& g, ArrayArg out, ArrayArg in, Splits out_splits, Splits in_splits, TimeArg timeout,
               OptsArg opts) {
          return alltoall_base(g, out, in, std::move(out_splits), std::move(in_splits),
                               {.timeout = timeout, .opts = opts}, name);
        },
        arg("output"), arg("input"), arg("output_split_sizes") = nb::none(), arg("input_split_sizes") = nb::none(),
        arg("timeout") = nb::none(), arg("opts") = nb::none(),
        "Splits are rows of dimension 0 for each rank; without them the parts are equal.");
  }
  bind_messages(group);
}

}  // namespace hookline::python
