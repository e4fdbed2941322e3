// The way of an operation through the levels, and how its parts are started.
#include "backend/layered/run.hpp"

#include <bit>

#include "backend/layered/divide.hpp"

namespace hookline::layered {

Run::Run(const Levels& levels, const Collective& collective, int lane, std::uint64_t number, Clock::time_point deadline,
         Scratch& scratch)
    : levels_(levels),
      topology_(levels.topology),
      collective_(collective),
      lane_(lane),
      number_(number),
      deadline_(deadline),
      scratch_(scratch),
      parts_(backend::cut(collective, levels.rank, levels.size)) {}

void Run::run() {
  // Runs without a header exchange, so that the barrier itself names the missing ranks.
  if (collective_.type == OpType::monitored_barrier) return through_engine();
  take_in(parts_);
  agree();
  if (parts_.motion == Motion::none) return;
  if (fits_slot()) {
    finish_from_slots();
  } else if (rode_) {
    finish_riding();
  } else if (parts_.motion == Motion::allreduce || parts_.motion == Motion::reduce) {
    reduce();
  } else if (parts_.motion == Motion::broadcast) {
    broadcast();
  } else if (parts_.motion == Motion::allgather && topology_.even()) {
    allgather();
  } else if (parts_.motion == Motion::reduce_scatter && topology_.even()) {
    reduce_scatter();
  } else {
    return through_engine();
  }
  give_back(parts_);
}

void Run::through_engine() { wait_for(levels_.flat->start(Collective(collective_), lane_, time_left()), levels_.all); }

WorkPtr Run::start(Backend& part, OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op,
                   int root) const {
  // A rank of this host may itself wait for another host, and then knows which rank to blame: let it time out first.
  const bool inside = &part == levels_.inner.get();
  return part.start({.type = type,
                     .inputs = std::move(inputs),
                     .outputs = std::move(outputs),
                     .op = op,
                     .root = root,
                     .note = collective_.note},
                    lane_, time_left() + (inside ? kForNames : Milliseconds(0)));
}

void Run::wait_for(const WorkPtr& work, const std::vector<int>& ranks) const {
  try {
    work->wait();
  } catch (...) {
    std::rethrow_exception(in_whole_group(std::current_exception(), ranks));
  }
}

void Run::wait_between(const WorkPtr& work) const { wait_for(work, topology_.owners(topology_.place)); }

void Run::inside(OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op, int root) const {
  wait_for(start(*levels_.inner, type, std::move(inputs), std::move(outputs), op, root), topology_.here());
}

// Returns the power of two by which float16 addends are divided before a mean, so that their sum does not overflow.
double Run::halvings() const {
  const bool small = is_avg() && parts_.dtype == DType::f16;
  return small ? static_cast<double>(std::bit_ceil(static_cast<unsigned>(levels_.size))) : 1.0;
}

ReduceOp Run::first_op() const {
  if (!is_avg()) return collective_.op;
  return halvings() > 1 ? ReduceOp::premul_sum(1.0 / halvings()) : ReduceOp::sum;
}

ReduceOp Run::second_op() const {
  const bool adds = is_avg() || collective_.op.kind() == ReduceOp::Kind::premul_sum;
  return adds ? ReduceOp::sum : collective_.op;
}

void Run::finish_mean(const Tensor& values) const {
  if (is_avg()) divide(values, halvings(), levels_.size);
}

}  // namespace hookline::layered
