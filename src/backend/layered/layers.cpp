// Runs the lanes of a hierarchical group, and handles its failures.
#include "backend/layered/layers.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/layered/run.hpp"
#include "backend/operation_kinds.hpp"
#include "backend/work_around.hpp"
#include "core/fork.hpp"
#include "core/thread.hpp"

namespace hookline::layered {
namespace {

int lanes_of(const Levels& levels) {
  int lanes = std::min(levels.inner->capabilities().lanes, levels.flat->capabilities().lanes);
  if (levels.slice) lanes = std::min(lanes, levels.slice->capabilities().lanes);
  return std::clamp(lanes, 1, Capabilities::kMostLanes);
}

/// A send or receive of the global sub-backend, whose errors name the ranks of the hierarchical group.
class MessageWork final : public backend::WorkAround {
 public:
  MessageWork(WorkPtr inner, const std::vector<int>& ranks) : WorkAround(std::move(inner)), ranks_(ranks) {}

  void wait(std::optional<Milliseconds> timeout) override {
    try {
      inner_->wait(timeout);
    } catch (...) {
      std::rethrow_exception(in_whole_group(std::current_exception(), ranks_));
    }
  }
  Future<std::vector<Tensor>> get_future() override {
    if (is_success()) return inner_->get_future();
    return inner_->get_future().then([ranks = ranks_](const Future<std::vector<Tensor>>& done) {
      if (const std::exception_ptr error = done.error()) std::rethrow_exception(in_whole_group(error, ranks));
      return done.value();
    });
  }
  void when_over(Task task, bool hasten) override { inner_->when_over(std::move(task), hasten); }
  std::exception_ptr exception() override {
    const std::exception_ptr error = inner_->exception();
    return error ? in_whole_group(error, ranks_) : nullptr;
  }

 private:
  const std::vector<int> ranks_;
};

}  // namespace

Layers::Layers(Levels levels)
    : levels_(std::move(levels)),
      lane_count_(lanes_of(levels_)),
      fork_generation_(core::fork_generation()),
      worker_(std::make_shared<ThreadExecutor>("hookline-work")) {}

Layers::~Layers() { close(); }

void Layers::refuse_in_forked_child(std::string_view what) const {
  if (fork_generation_ == core::fork_generation()) return;
  throw InvalidArgument(fmt::format(
      "{} on a hierarchical group that was made before fork(). Make a new group in the child process.", what));
}

std::exception_ptr Layers::why_unusable() {
  {
    const std::lock_guard lock(state_mutex_);
    if (broken_) return broken_;
    if (closed_) {
      return std::make_exception_ptr(
          Aborted(fmt::format("the hierarchical group was shut down on rank {}", levels_.rank), {levels_.rank}));
    }
  }
  std::exception_ptr cause = broken();
  if (cause) fail(cause);
  return cause;
}

WorkPtr Layers::start(Collective&& collective, int lane_index, Milliseconds timeout) {
  refuse_in_forked_child(name(collective.type));
  std::exception_ptr cause = why_unusable();
  // Sends and receives use the global sub-backend: recv_anysource must see the messages of all ranks in one place.
  if (!cause && backend::is_point_to_point(collective.type)) {
    return std::make_shared<MessageWork>(levels_.flat->start(std::move(collective), lane_index, timeout), levels_.all);
  }
  auto operation = std::make_shared<Operation>(shared_from_this(), worker_, std::move(collective), timeout);
  const auto index = static_cast<std::size_t>(lane_index);
  Lane& lane = lanes_[index];
  {
    const std::lock_guard lock(lane.mutex);
    if (!cause && !lane.stopping) {
      if (!lane.thread.joinable()) {
        lane.thread =
            core::start_thread("hookline-layer", [self = shared_from_this(), index] { self->run_lane(index); });
      }
      lane.queue.push_back(operation);
      lane.wake.notify_one();
      return operation;
    }
  }
  operation->complete(cause ? cause : why_unusable());
  return operation;
}

void Layers::run_lane(std::size_t index) {
  Lane& lane = lanes_[index];
  for (;;) {
    std::shared_ptr<Operation> next;
    {
      std::unique_lock lock(lane.mutex);
      lane.wake.wait(lock, [&] { return lane.stopping || !lane.queue.empty(); });
      if (lane.queue.empty()) return;
      next = std::move(lane.queue.front());
      lane.queue.pop_front();
    }
    next->complete(run(*next, index));
  }
}

// A Mismatch fails the operation alone; any other error fails the group.
std::exception_ptr Layers::run(const Operation& operation, std::size_t index) {
  if (std::exception_ptr cause = why_unusable()) return cause;
  Lane& lane = lanes_[index];
  std::optional<Run> steps;
  try {
    steps.emplace(levels_, operation.collective(), static_cast<int>(index), ++lane.number, operation.deadline(),
                  lane.scratch);
    steps->run();
    return nullptr;
  } catch (const Mismatch&) {
    return std::current_exception();
  } catch (...) {
    fail(std::current_exception());
    if (steps) steps->leave();
    return why_unusable();
  }
}

void Layers::fail(const std::exception_ptr& cause) {
  if (fork_generation_ != core::fork_generation()) return;  // the sub-backends belong to the parent process
  {
    const std::lock_guard lock(state_mutex_);
    if (broken_ || closed_) return;
    broken_ = cause;
  }
  const std::string text = told_to_parts(cause);
  levels_.flat->abort(text);
  if (levels_.slice) levels_.slice->abort(text);
  levels_.inner->abort(text);
}

std::exception_ptr Layers::broken() const {
  {
    const std::lock_guard lock(state_mutex_);
    if (broken_) return broken_;
  }
  if (const std::exception_ptr cause = levels_.flat->broken()) return in_whole_group(cause, levels_.all);
  if (levels_.slice) {
    if (const std::exception_ptr cause = levels_.slice->broken()) {
      return in_whole_group(cause, levels_.topology.owners(levels_.topology.place));
    }
  }
  const std::exception_ptr cause = levels_.inner->broken();
  return cause ? in_whole_group(cause, levels_.topology.here()) : nullptr;
}

void Layers::close() noexcept {
  if (fork_generation_ != core::fork_generation()) {
    // The threads exist only in the parent, so their mutexes and condition variables cannot be destroyed: leak all.
    itself_ = weak_from_this().lock();
    return;
  }
  {
    const std::lock_guard lock(state_mutex_);
    if (std::exchange(closed_, true)) return;
  }
  levels_.flat->shutdown();
  if (levels_.slice) levels_.slice->shutdown();
  levels_.inner->shutdown();
  for (Lane& lane : lanes_) {
    {
      const std::lock_guard lock(lane.mutex);
      lane.stopping = true;
    }
    lane.wake.notify_all();
  }
  for (Lane& lane : lanes_) core::end_thread(lane.thread);
}

}  // namespace hookline::layered
