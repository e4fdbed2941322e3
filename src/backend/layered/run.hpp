// A collective of a hierarchical group: header exchange, then intra-host and inter-host steps.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "backend/layered/levels.hpp"
#include "backend/layered/scratch.hpp"
#include "backend/parts.hpp"

namespace hookline::layered {

/// Extra time for waits whose timeout would blame the wrong rank, so that the better-informed rank times out first.
inline constexpr Milliseconds kForNames{250};

/// All ranks first exchange headers, inside their host and then between hosts; a small payload is piggybacked. Larger
/// reductions and broadcasts are pipelined in chunks: each rank reduces its slice of a chunk in shared memory,
/// exchanges it with the owners of the slice on other hosts, and broadcasts the result in shared memory, while the next
/// chunk is in flight. Operations that gain nothing from the hierarchy run on the global sub-backend.
class Run {
 public:
  /// The collective and the scratch memory must outlive this object. `number` counts the lane's operations.
  Run(const Levels& levels, const Collective& collective, int lane, std::uint64_t number, Clock::time_point deadline,
      Scratch& scratch);

  /// Blocks until done. Throws the operation's error; after a Mismatch all tensors are unchanged.
  void run();
  /// Call after run() threw and the sub-backends were aborted. Blocks until no thread accesses the tensors.
  void leave() noexcept;

 private:
  /// The blocks of the tensors. Not used by operations on the global sub-backend.
  using Parts = backend::Parts;
  using Motion = backend::Motion;

  void through_engine();

  // header_exchange.cpp: agreement on the headers, and small operations. A small payload travels to all ranks in its
  // rank's slot. For a larger one the sum over a host is piggybacked on the inter-host headers, slice by slice.
  void agree();
  void write_slot(std::byte* to) const;
  bool tell_by_levels();
  void tell(Backend& part, Collective&& what, const std::vector<int>& ranks, Milliseconds longer = {}) const;
  Tensor words(std::size_t begin, std::size_t bytes) const;
  const std::byte* word_of(int rank) const;
  const std::byte* payload(int rank) const;
  const std::byte* riding_of(std::size_t host) const;
  std::size_t slot_bytes() const;
  std::size_t riding_count() const;
  std::size_t riding_bytes() const;
  bool fits_slot() const;
  bool may_ride() const;
  void gather_riding(const Tensor& slot, const Tensor& to);
  void finish_riding();
  void finish_from_slots();

  // slices.cpp: allreduce, reduce and broadcast.
  void reduce();
  void broadcast();
  void reduce_between_hosts(const Tensor& values);
  Tensor packed();
  void unpack(const Tensor& values);
  void gather_slices(const Tensor& piece, ReduceOp op);
  void spread_slices(const Tensor& piece);
  Tensor slice_of(const Tensor& piece, std::size_t index) const;
  void in_pieces(const Tensor& values, const std::function<void(const Tensor&)>& before,
                 const std::function<WorkPtr(const Tensor&)>& between, const std::function<void(const Tensor&)>& after);

  /// A chunk whose inter-host operation is in flight.
  struct Piece {
    Tensor piece;
    WorkPtr work;  ///< null if this rank's slice of the chunk is empty
  };

  // blocks.cpp: allgather and reduce_scatter, on hosts with equal numbers of ranks.
  void allgather();
  void reduce_scatter();

  // Operations on the sub-backends.
  Milliseconds time_left() const { return std::max(hookline::time_left(deadline_), Milliseconds(1)); }
  WorkPtr start(Backend& part, OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                ReduceOp op = ReduceOp::sum, int root = 0) const;
  void wait_for(const WorkPtr& work, const std::vector<int>& ranks) const;
  void wait_between(const WorkPtr& work) const;
  void inside(OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op = ReduceOp::sum,
              int root = 0) const;

  bool is_avg() const { return collective_.op == ReduceOp::avg; }
  /// The reduction ops inside a host and between hosts. A mean is a sum that is divided at the end.
  ReduceOp first_op() const;
  ReduceOp second_op() const;
  void finish_mean(const Tensor& values) const;
  double halvings() const;

  const Levels& levels_;
  const Topology& topology_;
  const Collective& collective_;
  const int lane_;
  const std::uint64_t number_;
  const Clock::time_point deadline_;
  Scratch& scratch_;
  Parts parts_;
  Tensor slots_;            ///< slots of all ranks, then this rank's slot, then piggybacked sums
  Tensor riding_;           ///< piggybacked values, in the host's shared memory
  bool by_levels_ = false;  ///< the headers were exchanged by host
  bool rode_ = false;
  std::deque<Piece> under_way_;
};

}  // namespace hookline::layered
