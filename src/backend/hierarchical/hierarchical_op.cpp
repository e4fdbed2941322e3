// Selects the steps of a collective, and starts operations on the sub-backends.
#include "backend/hierarchical/hierarchical_op.hpp"

#include <bit>

#include "backend/hierarchical/divide.hpp"

namespace hookline::hierarchical {

HierarchicalOp::HierarchicalOp(const SubBackends& sub_backends, const Operation& operation, int lane,
                               std::uint64_t sequence, Clock::time_point deadline, Scratch& scratch)
    : sub_backends_(sub_backends),
      topology_(sub_backends.topology),
      operation_(operation),
      lane_(lane),
      sequence_(sequence),
      deadline_(deadline),
      scratch_(scratch),
      layout_(backend::make_block_layout(operation, sub_backends.rank, sub_backends.size)) {}

void HierarchicalOp::run() {
  // Runs without a header exchange, so that the barrier itself names the missing ranks.
  if (operation_.type == OpType::monitored_barrier) return run_global();
  pack_inputs(layout_);
  agree_on_headers();
  if (layout_.pattern == Pattern::none) return;
  if (fits_slot()) {
    finish_from_slots();
  } else if (piggybacked_) {
    finish_piggyback();
  } else if (layout_.pattern == Pattern::allreduce || layout_.pattern == Pattern::reduce) {
    reduce();
  } else if (layout_.pattern == Pattern::broadcast) {
    broadcast();
  } else if (layout_.pattern == Pattern::allgather && topology_.is_uniform()) {
    allgather();
  } else if (layout_.pattern == Pattern::reduce_scatter && topology_.is_uniform()) {
    reduce_scatter();
  } else {
    return run_global();
  }
  unpack_outputs(layout_);
}

void HierarchicalOp::run_global() {
  wait_for(sub_backends_.global->start(Operation(operation_), lane_, time_left()), sub_backends_.all_ranks);
}

WorkPtr HierarchicalOp::start(Backend& backend, OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
                              ReduceOp op, int root) const {
  // A rank of this host may itself wait for another host, and then knows which rank to blame: let it time out first.
  const bool is_intra_host = &backend == sub_backends_.intra_host.get();
  return backend.start({.type = type,
                        .inputs = std::move(inputs),
                        .outputs = std::move(outputs),
                        .op = op,
                        .root = root,
                        .op_tag = operation_.op_tag},
                       lane_, time_left() + (is_intra_host ? kBlameGrace : Milliseconds(0)));
}

void HierarchicalOp::wait_for(const WorkPtr& work, const std::vector<int>& ranks) const {
  try {
    work->wait();
  } catch (...) {
    std::rethrow_exception(translate_error(std::current_exception(), ranks));
  }
}

void HierarchicalOp::wait_inter_host(const WorkPtr& work) const {
  wait_for(work, topology_.owners(topology_.local_rank));
}

void HierarchicalOp::run_intra_host(OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op,
                                    int root) const {
  wait_for(start(*sub_backends_.intra_host, type, std::move(inputs), std::move(outputs), op, root),
           topology_.local_ranks());
}

// Returns the power of two by which float16 addends are divided before a mean, so that their sum does not overflow.
double HierarchicalOp::fp16_prescale() const {
  const bool prescale = is_avg() && layout_.dtype == DType::f16;
  return prescale ? static_cast<double>(std::bit_ceil(static_cast<unsigned>(sub_backends_.size))) : 1.0;
}

ReduceOp HierarchicalOp::intra_host_op() const {
  if (!is_avg()) return operation_.op;
  return fp16_prescale() > 1 ? ReduceOp::premul_sum(1.0 / fp16_prescale()) : ReduceOp::sum;
}

ReduceOp HierarchicalOp::inter_host_op() const {
  const bool sums = is_avg() || operation_.op.kind() == ReduceOp::Kind::premul_sum;
  return sums ? ReduceOp::sum : operation_.op;
}

void HierarchicalOp::divide_by_size(const Tensor& values) const {
  if (is_avg()) divide(values, fp16_prescale(), sub_backends_.size);
}

}  // namespace hookline::hierarchical
