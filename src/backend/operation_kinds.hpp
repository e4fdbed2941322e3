// Kinds of operations that several places tell apart.
#pragma once

#include <hookline/backend/collective.hpp>

namespace hookline::backend {

/// Sends and receives: outside lanes, and matched by peer, tag and order.
constexpr bool is_point_to_point(OpType type) noexcept {
  return type == OpType::send || type == OpType::recv || type == OpType::recv_anysource;
}

/// Whether it combines the ranks' elements, by its op.
constexpr bool is_reduction(OpType type) noexcept {
  return type == OpType::allreduce || type == OpType::allreduce_coalesced || type == OpType::reduce ||
         type == OpType::reduce_scatter || type == OpType::reduce_scatter_tensor ||
         type == OpType::reduce_scatter_tensor_coalesced;
}

/// Whether a collective has a root.
constexpr bool is_rooted(OpType type) noexcept {
  return type == OpType::reduce || type == OpType::broadcast || type == OpType::gather || type == OpType::scatter;
}

}  // namespace hookline::backend
