// Pipelined reductions and broadcasts: the inter-host transfer of a chunk overlaps with intra-host work on the next.
#include <algorithm>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/hierarchical/hierarchical_op.hpp"

namespace hookline::hierarchical {
namespace {

// The chunk size of each slice. Large enough to amortize the latency of the transport; small enough to start the first
// inter-host transfer early.
constexpr std::size_t kSliceBytes = 4 * 1024 * 1024;
// Double buffering: one chunk is in flight while the next one is ready.
constexpr std::size_t kMaxChunksInFlight = 2;

}  // namespace

// Returns all elements as one contiguous tensor: the output itself if possible, otherwise a packed copy.
Tensor HierarchicalOp::pack_values() {
  const std::size_t count = layout_.block_bytes / size_of(layout_.dtype);
  const bool in_place = layout_.recv_blocks[0].contiguous() && layout_.pattern != Pattern::reduce;
  if (in_place) {
    return Tensor::wrap(layout_.recv_blocks[0].contiguous(), {static_cast<std::int64_t>(count)}, layout_.dtype);
  }
  Tensor values = scratch_.shared(*sub_backends_.intra_host, count, layout_.dtype);
  layout_.send_blocks[0].read(0, layout_.block_bytes, values.mutable_bytes());
  return values;
}

void HierarchicalOp::unpack_values(const Tensor& values) {
  if (values.bytes() == layout_.recv_blocks[0].contiguous()) return;
  layout_.recv_blocks[0].write(0, layout_.block_bytes, values.bytes());
}

// The last slice also has the remainder.
Tensor HierarchicalOp::slice_of(const Tensor& chunk, std::size_t index) const {
  const auto slices = static_cast<std::int64_t>(topology_.slices);
  const auto i = static_cast<std::int64_t>(index);
  const std::int64_t slice_size = chunk.numel() / slices;
  return chunk.slice(0, i * slice_size, i + 1 == slices ? chunk.numel() : (i + 1) * slice_size);
}

// Reduces each slice over the ranks of this host, into the chunk of its owner.
void HierarchicalOp::reduce_to_owners(const Tensor& chunk, ReduceOp op) {
  const auto slices = static_cast<std::int64_t>(topology_.slices);
  const std::int64_t slice_size = chunk.numel() / slices;
  if (!topology_.is_uniform()) {
    for (std::size_t i = 0; i < topology_.slices; ++i) {
      run_intra_host(OpType::reduce, {}, {slice_of(chunk, i)}, op, static_cast<int>(i));
    }
    return;
  }
  const auto offset = static_cast<std::int64_t>(topology_.local_rank) * slice_size;
  if (slice_size > 0) {
    run_intra_host(OpType::reduce_scatter_tensor, {chunk.slice(0, 0, slice_size * slices)},
                   {chunk.slice(0, offset, offset + slice_size)}, op);
  }
  if (slice_size * slices < chunk.numel()) {
    run_intra_host(OpType::reduce, {}, {chunk.slice(0, slice_size * slices, chunk.numel())}, op,
                   static_cast<int>(slices) - 1);
  }
}

// Copies each slice from its owner to all ranks of this host.
void HierarchicalOp::broadcast_from_owners(const Tensor& chunk) {
  const auto slices = static_cast<std::int64_t>(topology_.slices);
  const std::int64_t slice_size = chunk.numel() / slices;
  if (!topology_.is_uniform()) {
    for (std::size_t i = 0; i < topology_.slices; ++i) {
      run_intra_host(OpType::broadcast, {}, {slice_of(chunk, i)}, ReduceOp::sum, static_cast<int>(i));
    }
    return;
  }
  const auto offset = static_cast<std::int64_t>(topology_.local_rank) * slice_size;
  if (slice_size > 0)
    run_intra_host(OpType::allgather_into_tensor, {chunk.slice(0, offset, offset + slice_size)},
                   {chunk.slice(0, 0, slice_size * slices)});
  if (slice_size * slices < chunk.numel()) {
    run_intra_host(OpType::broadcast, {}, {chunk.slice(0, slice_size * slices, chunk.numel())}, ReduceOp::sum,
                   static_cast<int>(slices) - 1);
  }
}

// All ranks of a host run the same operations in the same order; so do the owners of a slice.
void HierarchicalOp::run_pipelined(const Tensor& values, const std::function<void(const Tensor&)>& before,
                                   const std::function<WorkPtr(const Tensor&)>& inter_host,
                                   const std::function<void(const Tensor&)>& after) {
  const auto finish_oldest = [&] {
    if (in_flight_.front().work) wait_inter_host(in_flight_.front().work);
    after(in_flight_.front().chunk);
    in_flight_.pop_front();
  };
  const auto chunk_size = static_cast<std::int64_t>(kSliceBytes / values.itemsize() * topology_.slices);
  for (std::int64_t offset = 0; offset < values.numel(); offset += chunk_size) {
    const Tensor chunk = values.slice(0, offset, std::min(offset + chunk_size, values.numel()));
    before(chunk);
    const Tensor slice = topology_.owns_slice() ? slice_of(chunk, topology_.local_rank) : Tensor();
    in_flight_.push_back({chunk, slice.numel() > 0 ? inter_host(slice) : nullptr});
    if (in_flight_.size() > kMaxChunksInFlight) finish_oldest();
  }
  while (!in_flight_.empty()) finish_oldest();
}

void HierarchicalOp::wait_for_in_flight() noexcept {
  for (const InFlightChunk& chunk : in_flight_) {
    try {
      if (chunk.work) chunk.work->wait();
    } catch (...) {  // the operation already has its error
    }
  }
}

void HierarchicalOp::reduce() {
  const Tensor values = pack_values();
  if (operation_.inter_host_reducer) {
    reduce_inter_host(values);
    return unpack_values(values);
  }
  const bool to_one = layout_.pattern == Pattern::reduce;
  const std::size_t root_host = to_one ? topology_.host_of(operation_.root) : 0;
  const bool receives_result = !to_one || root_host == topology_.host;
  run_pipelined(
      values, [&](const Tensor& chunk) { reduce_to_owners(chunk, intra_host_op()); },
      [&](const Tensor& slice) {
        return start(*sub_backends_.inter_host, to_one ? OpType::reduce : OpType::allreduce, {}, {slice},
                     inter_host_op(), static_cast<int>(root_host));
      },
      [&](const Tensor& chunk) {
        if (!receives_result) return;
        if (topology_.owns_slice()) divide_by_size(slice_of(chunk, topology_.local_rank));
        broadcast_from_owners(chunk);
      });
  if (!to_one || sub_backends_.rank == operation_.root) unpack_values(values);
}

// The caller's InterHostReducer gets the whole slice at once; it does its own chunking.
void HierarchicalOp::reduce_inter_host(const Tensor& values) {
  reduce_to_owners(values, ReduceOp::sum);
  const Tensor slice = topology_.owns_slice() ? slice_of(values, topology_.local_rank) : Tensor();
  if (slice.numel() > 0) {
    const auto element_offset = static_cast<std::size_t>(slice.bytes() - values.bytes()) / values.itemsize();
    try {
      operation_.inter_host_reducer->reduce(sub_backends_.inter_host, slice, element_offset, lane_, time_left());
    } catch (const Mismatch& e) {  // not recoverable, since the tensors have already changed
      throw Aborted(fmt::format("mismatch in the inter-host reduction: {}", e.what()),
                    map_ranks(e.ranks(), topology_.owners(topology_.local_rank)));
    } catch (...) {
      std::rethrow_exception(translate_error(std::current_exception(), topology_.owners(topology_.local_rank)));
    }
  }
  broadcast_from_owners(values);
}

// Broadcasts on the root's host first; then the owners send their slices to the other hosts.
void HierarchicalOp::broadcast() {
  const Tensor values = pack_values();
  const std::size_t root_host = topology_.host_of(operation_.root);
  const bool on_root_host = root_host == topology_.host;
  const auto root_local_rank = static_cast<int>(topology_.local_rank_of(operation_.root));
  run_pipelined(
      values,
      [&](const Tensor& chunk) {
        if (on_root_host) run_intra_host(OpType::broadcast, {}, {chunk}, ReduceOp::sum, root_local_rank);
      },
      [&](const Tensor& slice) {
        return start(*sub_backends_.inter_host, OpType::broadcast, {}, {slice}, ReduceOp::sum,
                     static_cast<int>(root_host));
      },
      [&](const Tensor& chunk) {
        if (!on_root_host) broadcast_from_owners(chunk);
      });
  if (sub_backends_.rank != operation_.root) unpack_values(values);
}

}  // namespace hookline::hierarchical
