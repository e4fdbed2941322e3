// One operation of a process group, as plain data: what every layer below the user's call hands on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

/// Takes the ranks' blocks where they lie, instead of having them copied or reduced into outputs: how a collective of
/// encoded bytes is decoded. Called once, in the thread that drives the operation, with a pointer for each rank.
class HOOKLINE_EXPORT BlockReader {
 public:
  virtual ~BlockReader();
  virtual void read(std::span<const std::byte* const> blocks, std::size_t bytes) noexcept = 0;
};

class SliceReducer;  // backend.hpp

/// The source of a receive that takes a message from whoever sent one.
inline constexpr int kAnySource = -1;

/// What one rank contributes to an operation. Which tensors there are, for N ranks:
///   allreduce…              outputs: the tensors, which are read too; no inputs; reduce, broadcast: the same
///   allgather               inputs: k tensors, outputs: N times k, the first rank's k first
///   allgather_into_tensor…  inputs: k tensors, outputs: k tensors of N parts
///   gather                  inputs: one, outputs: N at the root, none elsewhere;  scatter: the other way round
///   reduce_scatter          inputs: N, outputs: one; reduce_scatter_tensor…: k tensors of N parts, and k
///   alltoall                inputs: N, outputs: N; alltoall_base: one and one, cut by the splits (rows of dimension 0)
///   send: inputs; recv…: outputs; barriers: none
struct Collective {
  OpType type = OpType::barrier;
  std::vector<Tensor> inputs = {};
  std::vector<Tensor> outputs = {};
  ReduceOp op = ReduceOp::sum;
  int root = 0;  ///< the root of a rooted operation, the peer of a send or receive
  int tag = 0;   ///< of a send or receive
  std::vector<std::int64_t> input_splits = {};
  std::vector<std::int64_t> output_splits = {};
  std::optional<Milliseconds> timeout = std::nullopt;  ///< the group's where not given
  bool wait_all_ranks = false;  ///< of monitored_barrier: name every rank that did not come, not just the first
  /// Of allgather_into_tensor and reduce_scatter_tensor, where Capabilities::readers allows it: gets the blocks of the
  /// inputs in the place of the outputs, of which there are none. It must live until the operation is over, and the
  /// inputs must lie in memory of the group's.
  BlockReader* reader = nullptr;
  /// Of allreduce with the op sum, where Capabilities::levels allows it: what is done between the hosts. It must live
  /// until the operation is over.
  SliceReducer* between = nullptr;
  std::uint64_t sequence_number = 0;  ///< counts the group's operations on this rank; the group gives it
  std::uint64_t note = 0;             ///< a number that is the same on all ranks; error texts say what it stands for
};

/// Whether an operation reads its outputs, and has no other inputs.
constexpr bool works_in_place(OpType type) noexcept {
  return type == OpType::allreduce || type == OpType::allreduce_coalesced || type == OpType::reduce ||
         type == OpType::broadcast;
}

/// The tensors that an operation reads.
inline const std::vector<Tensor>& sources(const Collective& collective) noexcept {
  return works_in_place(collective.type) ? collective.outputs : collective.inputs;
}

}  // namespace hookline
