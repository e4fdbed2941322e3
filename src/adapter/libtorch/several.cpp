// Calls of torch.distributed that consist of several operations with a single work.
#include <algorithm>
#include <utility>

#include <ATen/MemoryOverlap.h>

#include <hookline/group/coalescing.hpp>

#include "adapter/libtorch/call.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/tensors.hpp"

namespace hookline::libtorch {

TorchBackend::WorkHandle TorchBackend::start_all(Call&& call, std::vector<Collective> parts) {
  Coalescing all;
  all.start();
  for (Collective& part : parts) {
    part.timeout = time_of(call.timeout);
    if (call.op) part.op = call.reduction();
    all.add(group_->run(std::move(part)));
  }
  WorkPtr work = all.end();
  const bool wait = !call.async;
  return wrap(std::move(call), std::move(work), wait);
}

TorchBackend::WorkHandle TorchBackend::start_coalesced(Call&& call) {
  const auto same = [&](const at::Tensor& t) { return t.scalar_type() == call.inputs[0].scalar_type(); };
  if (call.inputs.empty() || std::all_of(call.inputs.begin(), call.inputs.end(), same)) return start(std::move(call));
  return called_by_torch([&] {
    const std::size_t count = call.inputs.size();
    if (call.outputs.empty() || call.outputs.size() % count != 0) {
      throw InvalidArgument(std::string(call.name()) + ": wrong number of outputs: expected a multiple of " +
                            std::to_string(count) + " (the number of inputs), got " +
                            std::to_string(call.outputs.size()));
    }
    std::vector<Collective> parts(count);
    for (std::size_t i = 0; i < count; ++i) {
      Collective& c = parts[i];
      c.type = call.type;
      if (!works_in_place(c.type)) c.inputs.push_back(view(call.inputs[i], call, true));
      // Outputs are lists for each rank; this operation takes one tensor of each list.
      for (std::size_t k = i; k < call.outputs.size(); k += count) {
        c.outputs.push_back(view(call.outputs[k], call, true));
      }
    }
    return start_all(std::move(call), std::move(parts));
  });
}

// Reduces each input to its rank. A reduce does not modify the inputs of ranks that are not its root.
TorchBackend::WorkHandle TorchBackend::start_uneven_reduce_scatter(Call&& call) {
  return called_by_torch([&] {
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
    std::vector<Collective> parts(call.inputs.size());
    for (std::size_t r = 0; r < parts.size(); ++r) {
      parts[r].type = OpType::reduce;
      parts[r].root = static_cast<int>(r);
      parts[r].outputs.push_back(view(r == me ? output : call.inputs[r], call, true));
    }
    output.copy_(call.inputs[me].reshape(output.sizes()));
    return start_all(std::move(call), std::move(parts));
  });
}

}  // namespace hookline::libtorch
