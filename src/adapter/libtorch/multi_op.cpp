// Calls of torch.distributed that consist of several operations with a single work.
#include <algorithm>
#include <utility>

#include <ATen/MemoryOverlap.h>

#include <hookline/group/coalescing.hpp>

#include "adapter/libtorch/call.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/tensors.hpp"

namespace hookline::libtorch {

TorchBackend::WorkHandle TorchBackend::start_as_one(Call&& call, std::vector<Operation> operations) {
  Coalescing coalesced;
  coalesced.start();
  for (Operation& operation : operations) {
    operation.timeout = optional_timeout(call.timeout);
    if (call.op) operation.op = call.reduction();
    coalesced.add(group_->run(std::move(operation)));
  }
  WorkPtr work = coalesced.end();
  const bool wait = !call.async;
  return wrap(std::move(call), std::move(work), wait);
}

TorchBackend::WorkHandle TorchBackend::start_coalesced(Call&& call) {
  const auto same = [&](const at::Tensor& t) { return t.scalar_type() == call.inputs[0].scalar_type(); };
  if (call.inputs.empty() || std::all_of(call.inputs.begin(), call.inputs.end(), same)) return start(std::move(call));
  return with_torch_errors([&] {
    const std::size_t count = call.inputs.size();
    if (call.outputs.empty() || call.outputs.size() % count != 0) {
      throw InvalidArgument(std::string(call.name()) + ": wrong number of outputs: expected a multiple of " +
                            std::to_string(count) + " (the number of inputs), got " +
                            std::to_string(call.outputs.size()));
    }
    std::vector<Operation> operations(count);
    for (std::size_t i = 0; i < count; ++i) {
      Operation& operation = operations[i];
      operation.type = call.type;
      if (!works_in_place(operation.type)) operation.inputs.push_back(view(call.inputs[i], call, true));
      // Outputs are lists for each rank; this operation takes one tensor of each list.
      for (std::size_t k = i; k < call.outputs.size(); k += count) {
        operation.outputs.push_back(view(call.outputs[k], call, true));
      }
    }
    return start_as_one(std::move(call), std::move(operations));
  });
}

// Reduces each input to its rank. A reduce does not modify the inputs of ranks that are not its root.
TorchBackend::WorkHandle TorchBackend::start_uneven_reduce_scatter(Call&& call) {
  return with_torch_errors([&] {
    const auto me = static_cast<std::size_t>(getRank());
    const at::Tensor& output = call.outputs[0];
    const std::string name = call.name();
    if (call.inputs.size() != static_cast<std::size_t>(getSize())) {
      throw InvalidArgument(name + ": wrong number of inputs: expected " + std::to_string(getSize()) + ", got " +
                            std::to_string(call.inputs.size()));
    }
    if (call.inputs[me].numel() != output.numel()) {
      throw InvalidArgument(name + ": wrong size of the output: expected " + std::to_string(call.inputs[me].numel()) +
                            " elements, as of input " + std::to_string(me) + ", got " + std::to_string(output.numel()));
    }
    for (const at::Tensor& input : call.inputs) {
      if (input.scalar_type() != output.scalar_type()) {
        throw InvalidArgument(name + ": inputs and output have different dtypes: expected " +
                              c10::toString(output.scalar_type()) + ", got " + c10::toString(input.scalar_type()));
      }
    }
    for (std::size_t r = 0; r < call.inputs.size(); ++r) {
      const at::MemOverlapStatus overlap = at::get_overlap_status(output, call.inputs[r]);
      if (overlap == at::MemOverlapStatus::Partial || (overlap == at::MemOverlapStatus::Full && r != me)) {
        throw InvalidArgument(name + ": the output overlaps input " + std::to_string(r) +
                              ": expected separate memory, or input " + std::to_string(me) +
                              " as the output. Pass a copy");
      }
    }
    std::vector<Operation> operations(call.inputs.size());
    for (std::size_t r = 0; r < operations.size(); ++r) {
      operations[r].type = OpType::reduce;
      operations[r].root = static_cast<int>(r);
      operations[r].outputs.push_back(view(r == me ? output : call.inputs[r], call, true));
    }
    output.copy_(call.inputs[me].reshape(output.sizes()));
    return start_as_one(std::move(call), std::move(operations));
  });
}

}  // namespace hookline::libtorch
