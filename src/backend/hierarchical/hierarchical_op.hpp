// A collective of a hierarchical group: header exchange, then intra-host and inter-host steps.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "backend/block_layout.hpp"
#include "backend/hierarchical/scratch.hpp"
#include "backend/hierarchical/sub_backends.hpp"

namespace hookline::hierarchical {

/// Extra time for waits whose timeout would blame the wrong rank, so that the better-informed rank times out first.
inline constexpr Milliseconds kBlameGrace{250};

/// All ranks first exchange headers, inside their host and then between hosts; a small payload is piggybacked. Larger
/// reductions and broadcasts are pipelined in chunks: each rank reduces its slice of a chunk in shared memory,
/// exchanges it with the owners of the slice on other hosts, and broadcasts the result in shared memory, while the next
/// chunk is in flight. Operations that gain nothing from the hierarchy run on the global sub-backend.
class HierarchicalOp {
 public:
  /// The operation and the scratch memory must outlive this object. `sequence` counts the lane's operations.
  HierarchicalOp(const SubBackends& sub_backends, const Operation& operation, int lane, std::uint64_t sequence,
                 Clock::time_point deadline, Scratch& scratch);

  /// Blocks until done. Throws the operation's error; after a Mismatch all tensors are unchanged.
  void run();
  /// Call after run() threw and the sub-backends were aborted. Blocks until no thread accesses the tensors.
  void wait_for_in_flight() noexcept;

 private:
  /// The blocks of the tensors. Not used by operations on the global sub-backend.
  using BlockLayout = backend::BlockLayout;
  using Pattern = backend::Pattern;

  void run_global();

  // header_exchange.cpp: agreement on the headers, and small operations. A small payload travels to all ranks in its
  // rank's slot. For a larger one the sum over a host is piggybacked on the inter-host headers, slice by slice.
  void agree_on_headers();
  void write_slot(std::byte* slot) const;
  bool exchange_headers_by_host();
  void exchange_headers(Backend& backend, Operation&& operation, const std::vector<int>& ranks,
                        Milliseconds grace = {}) const;
  Tensor header_slice(std::size_t begin, std::size_t bytes) const;
  const std::byte* header_of(int rank) const;
  const std::byte* payload(int rank) const;
  const std::byte* piggyback_of(std::size_t host) const;
  std::size_t slot_bytes() const;
  std::size_t piggyback_count() const;
  std::size_t piggyback_bytes() const;
  bool fits_slot() const;
  bool can_piggyback() const;
  void gather_piggyback(const Tensor& slot, const Tensor& output);
  void finish_piggyback();
  void finish_from_slots();

  // slices.cpp: allreduce, reduce and broadcast.
  void reduce();
  void broadcast();
  void reduce_inter_host(const Tensor& values);
  Tensor pack_values();
  void unpack_values(const Tensor& values);
  void reduce_to_owners(const Tensor& chunk, ReduceOp op);
  void broadcast_from_owners(const Tensor& chunk);
  Tensor slice_of(const Tensor& chunk, std::size_t index) const;
  void run_pipelined(const Tensor& values, const std::function<void(const Tensor&)>& before,
                     const std::function<WorkPtr(const Tensor&)>& inter_host,
                     const std::function<void(const Tensor&)>& after);

  /// A chunk whose inter-host operation is in flight.
  struct InFlightChunk {
    Tensor chunk;
    WorkPtr work;  ///< null if this rank's slice of the chunk is empty
  };

  // blocks.cpp: allgather and reduce_scatter, on hosts with equal numbers of ranks.
  void allgather();
  void reduce_scatter();

  // Operations on the sub-backends.
  Milliseconds time_left() const { return std::max(hookline::time_left(deadline_), Milliseconds(1)); }
  WorkPtr start(Backend& backend, OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                ReduceOp op = ReduceOp::sum, int root = 0) const;
  void wait_for(const WorkPtr& work, const std::vector<int>& ranks) const;
  void wait_inter_host(const WorkPtr& work) const;
  void run_intra_host(OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op = ReduceOp::sum,
                      int root = 0) const;

  bool is_avg() const { return operation_.op == ReduceOp::avg; }
  /// Return the reduction ops inside a host and between hosts. A mean is a sum that is divided at the end.
  ReduceOp intra_host_op() const;
  ReduceOp inter_host_op() const;
  void divide_by_size(const Tensor& values) const;
  double fp16_prescale() const;

  const SubBackends& sub_backends_;
  const Topology& topology_;
  const Operation& operation_;
  const int lane_;
  const std::uint64_t sequence_;
  const Clock::time_point deadline_;
  Scratch& scratch_;
  BlockLayout layout_;
  Tensor slots_;                    ///< slots of all ranks, then this rank's slot, then piggybacked sums
  Tensor piggyback_;                ///< piggybacked values, in the host's shared memory
  bool exchanged_by_host_ = false;  ///< the headers were exchanged by host
  bool piggybacked_ = false;
  std::deque<InFlightChunk> in_flight_;
};

}  // namespace hookline::hierarchical
