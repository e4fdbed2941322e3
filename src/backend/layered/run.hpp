// One collective of a layered group, from the ranks' agreement to the last byte, in the thread of its lane.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "backend/layered/levels.hpp"
#include "backend/layered/scratch.hpp"
#include "backend/parts.hpp"

namespace hookline::layered {

/// How much longer those wait who would blame the wrong rank if they were the first to give up.
inline constexpr Milliseconds kForNames{250};

/// First all ranks tell each other what they called, inside their host and then through the engine; a small payload
/// rides along, and then that is all, or all but its way to the ranks of the host. Larger reductions and broadcasts go
/// in pieces: each rank gets its slice of a piece in shared memory, takes it to its counterparts on the other hosts,
/// and spreads the result in shared memory, while the next piece is on the network. What has nothing to gain goes
/// through the engine as it is.
class Run {
 public:
  /// The collective and the scratch memory must outlive it; `number` counts the lane's operations.
  Run(const Levels& levels, const Collective& collective, int lane, std::uint64_t number, Clock::time_point deadline,
      Scratch& scratch);

  /// Blocks until it is done; throws what it fails with, Mismatch with all data untouched.
  void run();
  /// After run() threw and the parts were aborted: returns when nobody touches the tensors any more.
  void leave() noexcept;

 private:
  /// What a rank gives and takes, cut into blocks: not for what goes through the engine as it is.
  using Parts = backend::Parts;
  using Motion = backend::Motion;

  void through_engine();

  // agree.cpp: the agreement, and what needs no more than it. A small payload goes to everybody in the slot of its
  // rank; of a larger one the sum over a host rides on what counterparts tell each other, slice by slice.
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

  // slices.cpp: reductions to everybody or to one, and broadcasts.
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

  /// What is between the hosts, or was when it failed.
  struct Piece {
    Tensor piece;
    WorkPtr work;  ///< null where this rank has nothing to send of it
  };

  // blocks.cpp: a block from or for each rank, on hosts with as many ranks each.
  void allgather();
  void reduce_scatter();

  // Starting operations of the parts.
  Milliseconds time_left() const { return std::max(hookline::time_left(deadline_), Milliseconds(1)); }
  WorkPtr start(Backend& part, OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                ReduceOp op = ReduceOp::sum, int root = 0) const;
  void wait_for(const WorkPtr& work, const std::vector<int>& ranks) const;
  void wait_between(const WorkPtr& work) const;
  void inside(OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op = ReduceOp::sum,
              int root = 0) const;

  bool is_avg() const { return collective_.op == ReduceOp::avg; }
  /// What is done first, inside a host, and then between the hosts; a mean is divided at the end.
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
  Tensor slots_;            ///< what all ranks said, then what this one says, then what rides
  Tensor riding_;           ///< in the memory that the ranks of the host share
  bool by_levels_ = false;  ///< how they said it
  bool rode_ = false;
  std::deque<Piece> under_way_;
};

}  // namespace hookline::layered
