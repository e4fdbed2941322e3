// Predicates on operation types.
#pragma once

#include <hookline/backend/operation.hpp>

namespace hookline::backend {

/// True for sends and receives: they belong to no lane and are matched by peer, tag and order.
constexpr bool is_point_to_point(OpType type) noexcept {
  return type == OpType::send || type == OpType::recv || type == OpType::recv_anysource;
}

/// True for operations that reduce elements of all ranks with an op.
constexpr bool is_reduction(OpType type) noexcept {
  return type == OpType::allreduce || type == OpType::allreduce_coalesced || type == OpType::reduce ||
         type == OpType::reduce_scatter || type == OpType::reduce_scatter_tensor ||
         type == OpType::reduce_scatter_tensor_coalesced;
}

/// True for collectives with a root.
constexpr bool is_rooted(OpType type) noexcept {
  return type == OpType::reduce || type == OpType::broadcast || type == OpType::gather || type == OpType::scatter;
}

}  // namespace hookline::backend
