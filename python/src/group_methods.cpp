// The table of Python methods, and the nesting of their arguments.
#include "group_methods.hpp"

#include <array>
#include <vector>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "group_options.hpp"
#include "tensor_to_array.hpp"

namespace hookline::python {
namespace {

// In the order of OpType.
constexpr std::array<GroupMethod, kNumOpTypes> kMethods = {{
    {{"allreduce"}, "(tensors, opts)"},
    {{"allreduce_coalesced"}, "(tensors, opts)"},
    {{"reduce"}, "(tensors, opts)"},
    {{"broadcast"}, "(tensors, opts)"},
    {{"allgather"}, "(output_lists, inputs, opts)"},
    {{"allgather_into_tensor", "_allgather_base", "all_gather_single"}, "(output, input, opts)"},
    {{"allgather_coalesced"}, "(output_lists, inputs, opts)"},
    {{"allgather_into_tensor_coalesced", "all_gather_single_coalesced"}, "(outputs, inputs, opts)"},
    {{"gather"}, "(output_lists, inputs, opts)"},
    {{"scatter"}, "(outputs, input_lists, opts)"},
    {{"reduce_scatter"}, "(outputs, input_lists, opts)"},
    {{"reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter_single"}, "(output, input, opts)"},
    {{"reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"}, "(outputs, inputs, opts)"},
    {{"alltoall"}, "(outputs, inputs, opts)"},
    {{"alltoall_base", "all_to_all_single"}, "(output, input, output_split_sizes, input_split_sizes, opts)"},
    {{"send"}, "(tensors, dst, tag)"},
    {{"recv"}, "(tensors, src, tag)"},
    {{"recv_anysource"}, "(tensors, tag)"},
    {{"barrier"}, "(opts)"},
    {{"monitored_barrier"}, "(timeout, wait_all_ranks)"},
}};

/// Nests tensors in one list per device (always one); empty without tensors.
nb::object as_device_list(const std::vector<Tensor>& tensors) {
  nb::list list;
  if (!tensors.empty()) list.append(arrays_of(tensors));
  return list;
}

/// Splits tensors into one list per rank.
nb::object as_lists_per_rank(const std::vector<Tensor>& tensors, int size) {
  nb::list lists;
  const std::size_t tensors_per_rank = tensors.size() / static_cast<std::size_t>(size);
  for (auto first = tensors.begin(); first != tensors.end(); first += static_cast<std::ptrdiff_t>(tensors_per_rank)) {
    lists.append(arrays_of({first, first + static_cast<std::ptrdiff_t>(tensors_per_rank)}));
  }
  return lists;
}

}  // namespace

const GroupMethod& method_of(OpType type) noexcept { return kMethods[static_cast<std::size_t>(type)]; }

nb::object arguments_of(const Operation& c, int size) {
  const auto options = [&] { return options_object(c); };
  switch (c.type) {
    case OpType::allreduce:
    case OpType::allreduce_coalesced:
    case OpType::reduce:
    case OpType::broadcast: return nb::make_tuple(arrays_of(c.outputs), options());
    case OpType::allgather:
    case OpType::gather: return nb::make_tuple(as_device_list(c.outputs), arrays_of(c.inputs), options());
    case OpType::allgather_coalesced:
      return nb::make_tuple(as_lists_per_rank(c.outputs, size), arrays_of(c.inputs), options());
    case OpType::scatter:
    case OpType::reduce_scatter: return nb::make_tuple(arrays_of(c.outputs), as_device_list(c.inputs), options());
    case OpType::allgather_into_tensor:
    case OpType::reduce_scatter_tensor:
      return nb::make_tuple(array_of(c.outputs.at(0)), array_of(c.inputs.at(0)), options());
    case OpType::allgather_into_tensor_coalesced:
    case OpType::reduce_scatter_tensor_coalesced:
    case OpType::alltoall: return nb::make_tuple(arrays_of(c.outputs), arrays_of(c.inputs), options());
    case OpType::alltoall_base:
      return nb::make_tuple(array_of(c.outputs.at(0)), array_of(c.inputs.at(0)), c.output_splits, c.input_splits,
                            options());
    case OpType::send: return nb::make_tuple(arrays_of(c.inputs), c.root, c.tag);
    case OpType::recv: return nb::make_tuple(arrays_of(c.outputs), c.root, c.tag);
    case OpType::recv_anysource: return nb::make_tuple(arrays_of(c.outputs), c.tag);
    case OpType::barrier: return nb::make_tuple(options());
    case OpType::monitored_barrier: return nb::make_tuple(c.timeout, c.wait_all_ranks);
  }
  return nb::make_tuple();
}

}  // namespace hookline::python
