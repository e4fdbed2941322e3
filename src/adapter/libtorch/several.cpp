// Calls of torch.distributed that are several operations here, with one work for all of them.
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
      throw InvalidArgument(std::string(call.name()) + ": " + std::to_string(call.outputs.size()) +
                            " outputs were given for " + std::to_string(count) + " inputs");
    }
    std::vector<Collective> parts(count);
    for (std::size_t i = 0; i < count; ++i) {
      Collective& c = parts[i];
      c.type = call.type;
      if (!works_in_place(c.type)) c.inputs.push_back(view(call.inputs[i], call, true));
      // Of a list for each rank, this operation has one in each.
      for (std::size_t k = i; k < call.outputs.size(); k += count) {
        c.outputs.push_back(view(call.outputs[k], call, true));
      }
    }
    return start_all(std::move(call), std::move(parts));
  });
}

// Each part is reduced to the rank that it belongs to; a rank's inputs are not written to where it is not the root.
TorchBackend::WorkHandle TorchBackend::start_uneven_reduce_scatter(Call&& call) {
  return called_by_torch([&] {
    const auto me = static_cast<std::size_t>(getRank());
    const at::Tensor& output = call.outputs[0];
    const std::string name = call.name();
    if (call.inputs.size() != static_cast<std::size_t>(getSize())) {
      throw InvalidArgument(name + ": " + std::to_string(call.inputs.size()) + " inputs were given, " +
                            std::to_string(getSize()) + " are expected");
    }
    if (call.inputs[me].numel() != output.numel()) {
      throw InvalidArgument(name + ": the input for rank " + std::to_string(me) + " has " +
                            std::to_string(call.inputs[me].numel()) + " elements, and the output " +
                            std::to_string(output.numel()));
    }
    for (const at::Tensor& input : call.inputs) {
      if (input.scalar_type() != output.scalar_type()) {
        throw InvalidArgument(name + ": inputs and output differ in dtype");
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
