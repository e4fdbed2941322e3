// Sent bytes per operation type.
#include "group/wire_bytes.hpp"

#include <numeric>

#include <hookline/core/call_context.hpp>

namespace hookline::group {
namespace {

std::uint64_t bytes_of(const std::vector<Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Tensor& t) { return sum + t.nbytes(); });
}

}  // namespace

std::uint64_t wire_bytes(const Operation& operation, int size) {
  if (size < 2) return 0;
  const auto ranks = static_cast<std::uint64_t>(size);
  const std::uint64_t inputs = bytes_of(source_tensors(operation));
  const std::uint64_t outputs = bytes_of(operation.outputs);
  switch (operation.type) {
    case OpType::allreduce:
    case OpType::allreduce_coalesced: return 2 * (ranks - 1) * inputs / ranks;
    case OpType::allgather:
    case OpType::allgather_into_tensor:
    case OpType::allgather_coalesced:
    case OpType::allgather_into_tensor_coalesced: return (ranks - 1) * inputs;
    case OpType::scatter: return (ranks - 1) * outputs / ranks;
    case OpType::reduce:
    case OpType::broadcast:
    case OpType::gather:
    case OpType::reduce_scatter:
    case OpType::reduce_scatter_tensor:
    case OpType::reduce_scatter_tensor_coalesced:
    case OpType::alltoall:
    case OpType::alltoall_base: return (ranks - 1) * inputs / ranks;
    case OpType::send: return inputs;
    case OpType::recv:
    case OpType::recv_anysource:
    case OpType::barrier:
    case OpType::monitored_barrier: break;
  }
  return 0;
}

SentBytes::SentBytes() : counter_(current_context().bytes_sent), initial_(counter_ ? counter_->load() : 0) {}

void SentBytes::add(const Operation& operation, int size) const {
  if (counter_ && counter_->load() == initial_) counter_->fetch_add(wire_bytes(operation, size));
}

}  // namespace hookline::group
