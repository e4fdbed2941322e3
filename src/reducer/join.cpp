// ReducerImpl: join for uneven inputs.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/reducer/broadcast_coalesced.hpp>

#include "reducer/reducer_impl.hpp"

namespace hookline::reducer {
namespace {

/// Buffer size of the parameter broadcast; small, because the buckets are allocated at the same time.
constexpr std::size_t kJoinBufferBytes = std::size_t{1} << 18;

}  // namespace

void ReducerImpl::check_join_allowed(const char* caller) const {
  check_between_steps(caller);
  if (no_sync) {
    throw InvalidArgument(fmt::format(
        "{} is not allowed under no_sync, which runs no steps that ranks could join. Leave no_sync first.", caller));
  }
}

void ReducerImpl::begin_join(const JoinOptions& join_options) {
  check_join_allowed("join");
  if (join_) throw InvalidArgument("join is not allowed inside a join");
  if (options.reduction == GradientReduction::mean && !join_options.divide_by_initial_world_size) {
    require_floating_gradients(
        "a join with divide_by_initial_world_size=False would scale their rounded means. Omit that option");
  }
  join_ = join_options;
}

void ReducerImpl::end_join() {
  check_join_allowed("end_join");
  if (!join_) throw InvalidArgument("end_join: no join is active; call begin_join first");
  bool did_last_step = true;
  joined_ = true;
  try {
    while (open_step(false)) {
      did_last_step = false;
      finalize();
    }
  } catch (...) {
    joined_ = false;
    join_.reset();
    throw;
  }
  joined_ = false;
  join_.reset();
  reduced_ = false;  // the broadcast below replaces the parameters, which the gradients then no longer match

  // At least one rank ran the last step; the highest such rank is the root.
  run_control_collective("end_join: broadcasting parameters", [&] {
    const Tensor authority = Tensor::full({1}, did_last_step ? group->rank() : -1, DType::i64);
    group->allreduce(authority, {.op = ReduceOp::max})->wait();
    broadcast_coalesced(*group, trainable_tensors(), kJoinBufferBytes, authority.item<int>());
  });
}

}  // namespace hookline::reducer
