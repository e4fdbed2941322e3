// Ranks that have run out of inputs take part in the others' steps.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/reducer/broadcast_coalesced.hpp>

#include "reducer/reducer_impl.hpp"

namespace hookline::reducer {
namespace {

/// Of the packed parameters; small, as the buckets take their memory at the same time.
constexpr std::size_t kJoinBufferBytes = std::size_t{1} << 18;

}  // namespace

void ReducerImpl::check_join_allowed(const char* caller) const {
  check_between_steps(caller);
  if (no_sync) {
    throw InvalidArgument(
        fmt::format("{} under no_sync, where no steps are taken that ranks could join; leave no_sync first", caller));
  }
}

void ReducerImpl::begin_join(const JoinOptions& join_options) {
  check_join_allowed("join");
  if (join_) throw InvalidArgument("join inside a join");
  if (options.reduction == GradientReduction::mean && !join_options.divide_by_initial_world_size) {
    require_floating_gradients(
        "a join with divide_by_initial_world_size=False multiplies their rounded means. Leave that option out");
  }
  join_ = join_options;
}

void ReducerImpl::end_join() {
  check_join_allowed("the end of a join");
  if (!join_) throw InvalidArgument("the end of a join that was not begun");
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

  // Somebody did the last step; of several, the highest rank counts.
  run_control_collective("taking over parameters at the end of a join", [&] {
    const Tensor authority = Tensor::full({1}, did_last_step ? group->rank() : -1, DType::i64);
    group->allreduce(authority, {.op = ReduceOp::max})->wait();
    broadcast_coalesced(*group, trainable_tensors(), kJoinBufferBytes, authority.item<int>());
  });
}

}  // namespace hookline::reducer
