// The description of one operation of a process group, as plain data.
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

/// Operation types, named after the methods that start them.
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
inline constexpr std::size_t kNumOpTypes = 20;

/// Returns the method's name, for example "allreduce" or "alltoall_base".
HOOKLINE_EXPORT std::string_view name(OpType type) noexcept;

/// Reads the blocks of all ranks in place, instead of a copy or reduction into outputs. Used to decode compressed
/// blocks. read() is called once, on the thread that drives the operation, with one pointer per rank.
class HOOKLINE_EXPORT BlockReader {
 public:
  virtual ~BlockReader();
  virtual void read(std::span<const std::byte* const> blocks, std::size_t bytes) noexcept = 0;
};

class InterHostReducer;  // backend.hpp

/// The source of a receive that matches messages from any rank (MPI_ANY_SOURCE).
inline constexpr int kAnySource = -1;

/// One rank's call of an operation. Tensors by type, for N ranks and k coalesced tensors:
///   allreduce…, reduce, broadcast    in place: outputs only
///   allgather                        inputs: k; outputs: N * k, ordered by rank
///   allgather_into_tensor…           inputs: k; outputs: k, each with N blocks
///   gather                           inputs: 1; outputs: N at the root, 0 elsewhere
///   scatter                          inputs: N at the root, 0 elsewhere; outputs: 1
///   reduce_scatter                   inputs: N; outputs: 1
///   reduce_scatter_tensor…           inputs: k, each with N blocks; outputs: k
///   alltoall                         inputs: N; outputs: N
///   alltoall_base                    inputs: 1; outputs: 1; divided by the splits (rows of dimension 0)
///   send: inputs: 1; recv…: outputs: 1; barriers: none
struct Operation {
  OpType type = OpType::barrier;
  std::vector<Tensor> inputs = {};
  std::vector<Tensor> outputs = {};
  ReduceOp op = ReduceOp::sum;
  int root = 0;  ///< root rank, or the peer of a send or receive
  int tag = 0;   ///< tag of a send or receive
  std::vector<std::int64_t> input_splits = {};
  std::vector<std::int64_t> output_splits = {};
  std::optional<Milliseconds> timeout = std::nullopt;  ///< unset: the group's timeout
  bool wait_all_ranks = false;  ///< monitored_barrier: the error names all missing ranks, not only the first
  /// For allgather_into_tensor and reduce_scatter_tensor if Capabilities::zero_copy_reads is true: receives the blocks
  /// of the inputs; outputs must be empty. Must outlive the operation. Inputs must lie in memory from allocate().
  BlockReader* reader = nullptr;
  /// For allreduce with the op sum if Capabilities::hierarchical is true. Must outlive the operation.
  InterHostReducer* inter_host_reducer = nullptr;
  std::uint64_t sequence_number = 0;  ///< assigned by the group: counts its operations on this rank
  std::uint64_t op_tag = 0;           ///< identifies the bucket or step; must be equal on all ranks
};

/// True for operations that read and write `outputs` and have no inputs.
constexpr bool works_in_place(OpType type) noexcept {
  return type == OpType::allreduce || type == OpType::allreduce_coalesced || type == OpType::reduce ||
         type == OpType::broadcast;
}

/// Returns the tensors that an operation reads.
inline const std::vector<Tensor>& source_tensors(const Operation& operation) noexcept {
  return works_in_place(operation.type) ? operation.outputs : operation.inputs;
}

}  // namespace hookline
