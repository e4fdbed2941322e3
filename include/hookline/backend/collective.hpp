// One operation of a process group, as plain data: what every layer below the user's call hands on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/reduce_op.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// The operations, each under the name of the method that starts it.
enum class OpType : std::uint8_t {
  allreduce,
  allreduce_coalesced,
  reduce,
  broadcast,
  allgather,
  allgather_into_tensor,
  allgather_coalesced,
  allgather_into_tensor_coalesced,
  gather,
  scatter,
  reduce_scatter,
  reduce_scatter_tensor,
  reduce_scatter_tensor_coalesced,
  alltoall,
  alltoall_base,
  send,
  recv,
  recv_anysource,
  barrier,
  monitored_barrier,
};
inline constexpr std::size_t kOpTypes = 20;

/// The method's name: "allreduce", "alltoall_base".
HOOKLINE_EXPORT std::string_view name(OpType type) noexcept;

/// The source of a receive that takes a message from whoever sent one.
inline constexpr int kAnySource = -1;

/// What one rank contributes to an operation. Which tensors there are, for N ranks:
///   allreduce…              inputs = outputs: the tensors themselves; reduce, broadcast: the same
///   allgather               inputs: k tensors, outputs: N times k, the first rank's k first
///   allgather_into_tensor…  inputs: k tensors, outputs: k tensors of N parts
///   gather                  inputs: one, outputs: N at the root, none elsewhere;  scatter: the other way round
///   reduce_scatter          inputs: N, outputs: one; reduce_scatter_tensor…: k tensors of N parts, and k
///   alltoall                inputs: N, outputs: N; alltoall_base: one and one, cut by the splits (rows of dimension 0)
///   send: inputs; recv…: outputs; barriers: none
struct Collective {
  OpType type = OpType::barrier;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  ///< the root of a rooted operation, the peer of a send or receive
  int tag = 0;   ///< of a send or receive
  std::vector<std::int64_t> input_splits;
  std::vector<std::int64_t> output_splits;
  std::optional<Milliseconds> timeout = std::nullopt;  ///< the group's where not given
  bool wait_all_ranks = false;  ///< of monitored_barrier: name every rank that did not come, not just the first
  std::uint64_t note = 0;       ///< a number that is the same on all ranks; error texts say what it stands for
};

}  // namespace hookline
