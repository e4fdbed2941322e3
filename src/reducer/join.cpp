// Ranks that have run out of inputs take part in the others' steps.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/reducer/broadcast_coalesced.hpp>

#include "reducer/core.hpp"

namespace hookline::reducer {
namespace {

/// Of the packed parameters; small, as the buckets take their memory at the same time.
constexpr std::size_t kJoinBytes = std::size_t{1} << 18;

}  // namespace

void Core::check_may_join(const char* caller) const {
  check_between_steps(caller);
  if (no_sync) {
    throw InvalidArgument(
        fmt::format("{} under no_sync, where no steps are taken that ranks could join; leave no_sync first", caller));
  }
}

void Core::begin_join(const JoinOptions& how) {
  check_may_join("join");
  if (join_) throw InvalidArgument("join inside a join");
  if (options.mean == Mean::average && !how.divide_by_initial_world_size) {
    refuse_integers(
        "a join with divide_by_initial_world_size=False multiplies their rounded means. Leave that option out");
  }
  join_ = how;
}

void Core::end_join() {
  check_may_join("the end of a join");
  if (!join_) throw InvalidArgument("the end of a join that was not begun");
  bool was_last = true;
  shadowing_ = true;
  try {
    while (open_step(false)) {
      was_last = false;
      finalize();
    }
  } catch (...) {
    shadowing_ = false;
    join_.reset();
    throw;
  }
  shadowing_ = false;
  join_.reset();

  // Somebody did the last step; of several, the highest rank counts.
  agree("taking over parameters at the end of a join", [&] {
    const Tensor authority = Tensor::full({1}, was_last ? group->rank() : -1, DType::i64);
    group->allreduce(authority, {.op = ReduceOp::max})->wait();
    broadcast_coalesced(*group, reduced_tensors(), kJoinBytes, authority.item<int>());
  });
}

}  // namespace hookline::reducer
