// Pipelined reductions and broadcasts: the inter-host transfer of a chunk overlaps with intra-host work on the next.
#include <algorithm>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/layered/run.hpp"

namespace hookline::layered {
namespace {

// The chunk size of each slice. Large enough to amortize the latency of the transport; small enough to start the first
// inter-host transfer early.
constexpr std::size_t kSliceBytes = 4 * 1024 * 1024;
// Double buffering: one chunk is in flight while the next one is ready.
constexpr std::size_t kUnderWay = 2;

}  // namespace

// Returns all elements as one contiguous tensor: the output itself if possible, otherwise a packed copy.
Tensor Run::packed() {
  const std::size_t count = parts_.block_bytes / size_of(parts_.dtype);
  const bool in_place = parts_.take[0].contiguous() && parts_.motion != Motion::reduce;
  if (in_place) {
    return Tensor::wrap(parts_.take[0].contiguous(), {static_cast<std::int64_t>(count)}, parts_.dtype);
  }
  Tensor values = scratch_.shared(*levels_.inner, count, parts_.dtype);
  parts_.give[0].read(0, parts_.block_bytes, values.mutable_bytes());
  return values;
}

void Run::unpack(const Tensor& values) {
  if (values.bytes() == parts_.take[0].contiguous()) return;
  parts_.take[0].write(0, parts_.block_bytes, values.bytes());
}

// The last slice also has the remainder.
Tensor Run::slice_of(const Tensor& piece, std::size_t index) const {
  const auto slices = static_cast<std::int64_t>(topology_.slices);
  const auto i = static_cast<std::int64_t>(index);
  const std::int64_t each = piece.numel() / slices;
  return piece.slice(0, i * each, i + 1 == slices ? piece.numel() : (i + 1) * each);
}

// Reduces each slice over the ranks of this host, into the chunk of its owner.
void Run::gather_slices(const Tensor& piece, ReduceOp op) {
  const auto slices = static_cast<std::int64_t>(topology_.slices);
  const std::int64_t each = piece.numel() / slices;
  if (!topology_.even()) {
    for (std::size_t i = 0; i < topology_.slices; ++i) {
      inside(OpType::reduce, {}, {slice_of(piece, i)}, op, static_cast<int>(i));
    }
    return;
  }
  const auto at = static_cast<std::int64_t>(topology_.place) * each;
  if (each > 0) {
    inside(OpType::reduce_scatter_tensor, {piece.slice(0, 0, each * slices)}, {piece.slice(0, at, at + each)}, op);
  }
  if (each * slices < piece.numel()) {
    inside(OpType::reduce, {}, {piece.slice(0, each * slices, piece.numel())}, op, static_cast<int>(slices) - 1);
  }
}

// Copies each slice from its owner to all ranks of this host.
void Run::spread_slices(const Tensor& piece) {
  const auto slices = static_cast<std::int64_t>(topology_.slices);
  const std::int64_t each = piece.numel() / slices;
  if (!topology_.even()) {
    for (std::size_t i = 0; i < topology_.slices; ++i) {
      inside(OpType::broadcast, {}, {slice_of(piece, i)}, ReduceOp::sum, static_cast<int>(i));
    }
    return;
  }
  const auto at = static_cast<std::int64_t>(topology_.place) * each;
  if (each > 0)
    inside(OpType::allgather_into_tensor, {piece.slice(0, at, at + each)}, {piece.slice(0, 0, each * slices)});
  if (each * slices < piece.numel()) {
    inside(OpType::broadcast, {}, {piece.slice(0, each * slices, piece.numel())}, ReduceOp::sum,
           static_cast<int>(slices) - 1);
  }
}

// All ranks of a host run the same operations in the same order; so do the owners of a slice.
void Run::in_pieces(const Tensor& values, const std::function<void(const Tensor&)>& before,
                    const std::function<WorkPtr(const Tensor&)>& between,
                    const std::function<void(const Tensor&)>& after) {
  const auto finish_first = [&] {
    if (under_way_.front().work) wait_between(under_way_.front().work);
    after(under_way_.front().piece);
    under_way_.pop_front();
  };
  const auto each = static_cast<std::int64_t>(kSliceBytes / values.itemsize() * topology_.slices);
  for (std::int64_t at = 0; at < values.numel(); at += each) {
    const Tensor piece = values.slice(0, at, std::min(at + each, values.numel()));
    before(piece);
    const Tensor slice = topology_.owns_slice() ? slice_of(piece, topology_.place) : Tensor();
    under_way_.push_back({piece, slice.numel() > 0 ? between(slice) : nullptr});
    if (under_way_.size() > kUnderWay) finish_first();
  }
  while (!under_way_.empty()) finish_first();
}

void Run::leave() noexcept {
  for (const Piece& piece : under_way_) {
    try {
      if (piece.work) piece.work->wait();
    } catch (...) {  // the operation already has its error
    }
  }
}

void Run::reduce() {
  const Tensor values = packed();
  if (collective_.between) {
    reduce_between_hosts(values);
    return unpack(values);
  }
  const bool to_one = parts_.motion == Motion::reduce;
  const std::size_t root_host = to_one ? topology_.host_of(collective_.root) : 0;
  const bool takes = !to_one || root_host == topology_.host;
  in_pieces(
      values, [&](const Tensor& piece) { gather_slices(piece, first_op()); },
      [&](const Tensor& slice) {
        return start(*levels_.slice, to_one ? OpType::reduce : OpType::allreduce, {}, {slice}, second_op(),
                     static_cast<int>(root_host));
      },
      [&](const Tensor& piece) {
        if (!takes) return;
        if (topology_.owns_slice()) finish_mean(slice_of(piece, topology_.place));
        spread_slices(piece);
      });
  if (!to_one || levels_.rank == collective_.root) unpack(values);
}

// The caller's InterHostReducer gets the whole slice at once; it does its own chunking.
void Run::reduce_between_hosts(const Tensor& values) {
  gather_slices(values, ReduceOp::sum);
  const Tensor slice = topology_.owns_slice() ? slice_of(values, topology_.place) : Tensor();
  if (slice.numel() > 0) {
    const auto first = static_cast<std::size_t>(slice.bytes() - values.bytes()) / values.itemsize();
    try {
      collective_.between->reduce(levels_.slice, slice, first, lane_, time_left());
    } catch (const Mismatch& e) {  // not recoverable, since the tensors have already changed
      throw Aborted(fmt::format("mismatch in the inter-host reduction: {}", e.what()),
                    group_ranks(e.ranks(), topology_.owners(topology_.place)));
    } catch (...) {
      std::rethrow_exception(in_whole_group(std::current_exception(), topology_.owners(topology_.place)));
    }
  }
  spread_slices(values);
}

// Broadcasts on the root's host first; then the owners send their slices to the other hosts.
void Run::broadcast() {
  const Tensor values = packed();
  const std::size_t root_host = topology_.host_of(collective_.root);
  const bool at_root = root_host == topology_.host;
  const auto root_place = static_cast<int>(topology_.place_of(collective_.root));
  in_pieces(
      values,
      [&](const Tensor& piece) {
        if (at_root) inside(OpType::broadcast, {}, {piece}, ReduceOp::sum, root_place);
      },
      [&](const Tensor& slice) {
        return start(*levels_.slice, OpType::broadcast, {}, {slice}, ReduceOp::sum, static_cast<int>(root_host));
      },
      [&](const Tensor& piece) {
        if (!at_root) spread_slices(piece);
      });
  if (levels_.rank != collective_.root) unpack(values);
}

}  // namespace hookline::layered
