// Runs the lanes of a hierarchical group, and handles its failures.
#include "backend/hierarchical/hierarchical_context.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/forwarding_work.hpp"
#include "backend/hierarchical/hierarchical_op.hpp"
#include "backend/op_traits.hpp"
#include "core/fork.hpp"
#include "core/thread.hpp"

namespace hookline::hierarchical {
namespace {

int common_lanes(const SubBackends& sub_backends) {
  int lanes = std::min(sub_backends.intra_host->capabilities().lanes, sub_backends.global->capabilities().lanes);
  if (sub_backends.inter_host) lanes = std::min(lanes, sub_backends.inter_host->capabilities().lanes);
  return std::clamp(lanes, 1, Capabilities::kMaxLanes);
}

/// A send or receive of the global sub-backend, whose errors name the ranks of the hierarchical group.
class P2PWork final : public backend::ForwardingWork {
 public:
  P2PWork(WorkPtr inner, const std::vector<int>& global_ranks)
      : ForwardingWork(std::move(inner)), global_ranks_(global_ranks) {}

  void wait(std::optional<Milliseconds> timeout) override {
    try {
      inner_->wait(timeout);
    } catch (...) {
      std::rethrow_exception(translate_error(std::current_exception(), global_ranks_));
    }
  }
  Future<std::vector<Tensor>> get_future() override {
    if (is_success()) return inner_->get_future();
    return inner_->get_future().then([ranks = global_ranks_](const Future<std::vector<Tensor>>& done) {
      if (const std::exception_ptr error = done.error()) std::rethrow_exception(translate_error(error, ranks));
      return done.value();
    });
  }
  void on_complete(Task callback, Urgency urgency) override { inner_->on_complete(std::move(callback), urgency); }
  std::exception_ptr exception() override {
    const std::exception_ptr error = inner_->exception();
    return error ? translate_error(error, global_ranks_) : nullptr;
  }

 private:
  const std::vector<int> global_ranks_;
};

}  // namespace

HierarchicalContext::HierarchicalContext(SubBackends sub_backends)
    : sub_backends_(std::move(sub_backends)),
      lane_count_(common_lanes(sub_backends_)),
      fork_generation_(core::fork_generation()),
      worker_(std::make_shared<ThreadExecutor>("hookline-worker")) {}

HierarchicalContext::~HierarchicalContext() { close(); }

void HierarchicalContext::refuse_in_forked_child(std::string_view call) const {
  if (fork_generation_ == core::fork_generation()) return;
  throw InvalidArgument(fmt::format(
      "{} on a hierarchical group that was made before fork(). Create a new group in the child process.", call));
}

std::exception_ptr HierarchicalContext::unusable_error() {
  {
    const std::lock_guard lock(state_mutex_);
    if (error_) return error_;
    if (closed_) {
      return std::make_exception_ptr(Aborted(
          fmt::format("the hierarchical group was shut down on rank {}", sub_backends_.rank), {sub_backends_.rank}));
    }
  }
  std::exception_ptr cause = error();
  if (cause) fail(cause);
  return cause;
}

WorkPtr HierarchicalContext::start(Operation&& operation, int lane_index, Milliseconds timeout) {
  refuse_in_forked_child(name(operation.type));
  std::exception_ptr cause = unusable_error();
  // Sends and receives use the global sub-backend: recv_anysource must see the messages of all ranks in one place.
  if (!cause && backend::is_point_to_point(operation.type)) {
    return std::make_shared<P2PWork>(sub_backends_.global->start(std::move(operation), lane_index, timeout),
                                     sub_backends_.all_ranks);
  }
  auto work = std::make_shared<HierarchicalWork>(shared_from_this(), worker_, std::move(operation), timeout);
  const auto index = static_cast<std::size_t>(lane_index);
  Lane& lane = lanes_[index];
  {
    const std::lock_guard lock(lane.mutex);
    if (!cause && !lane.stopping) {
      if (!lane.thread.joinable()) {
        lane.thread =
            core::start_thread("hookline-hier", [self = shared_from_this(), index] { self->run_lane(index); });
      }
      lane.queue.push_back(work);
      lane.wake.notify_one();
      return work;
    }
  }
  work->complete(cause ? cause : unusable_error());
  return work;
}

void HierarchicalContext::run_lane(std::size_t index) {
  Lane& lane = lanes_[index];
  for (;;) {
    std::shared_ptr<HierarchicalWork> next;
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
std::exception_ptr HierarchicalContext::run(const HierarchicalWork& work, std::size_t index) {
  if (std::exception_ptr cause = unusable_error()) return cause;
  Lane& lane = lanes_[index];
  std::optional<HierarchicalOp> op;
  try {
    op.emplace(sub_backends_, work.operation(), static_cast<int>(index), ++lane.sequence, work.deadline(),
               lane.scratch);
    op->run();
    return nullptr;
  } catch (const Mismatch&) {
    return std::current_exception();
  } catch (...) {
    fail(std::current_exception());
    if (op) op->wait_for_in_flight();
    return unusable_error();
  }
}

void HierarchicalContext::fail(const std::exception_ptr& cause) {
  if (fork_generation_ != core::fork_generation()) return;  // the sub-backends belong to the parent process
  {
    const std::lock_guard lock(state_mutex_);
    if (error_ || closed_) return;
    error_ = cause;
  }
  const std::string text = abort_message(cause);
  sub_backends_.global->abort(text);
  if (sub_backends_.inter_host) sub_backends_.inter_host->abort(text);
  sub_backends_.intra_host->abort(text);
}

std::exception_ptr HierarchicalContext::error() const {
  {
    const std::lock_guard lock(state_mutex_);
    if (error_) return error_;
  }
  if (const std::exception_ptr cause = sub_backends_.global->error())
    return translate_error(cause, sub_backends_.all_ranks);
  if (sub_backends_.inter_host) {
    if (const std::exception_ptr cause = sub_backends_.inter_host->error()) {
      return translate_error(cause, sub_backends_.topology.owners(sub_backends_.topology.local_rank));
    }
  }
  const std::exception_ptr cause = sub_backends_.intra_host->error();
  return cause ? translate_error(cause, sub_backends_.topology.local_ranks()) : nullptr;
}

void HierarchicalContext::close() noexcept {
  if (fork_generation_ != core::fork_generation()) {
    // The threads exist only in the parent, so their mutexes and condition variables cannot be destroyed: leak all.
    leaked_self_ = weak_from_this().lock();
    return;
  }
  {
    const std::lock_guard lock(state_mutex_);
    if (std::exchange(closed_, true)) return;
  }
  sub_backends_.global->shutdown();
  if (sub_backends_.inter_host) sub_backends_.inter_host->shutdown();
  sub_backends_.intra_host->shutdown();
  for (Lane& lane : lanes_) {
    {
      const std::lock_guard lock(lane.mutex);
      lane.stopping = true;
    }
    lane.wake.notify_all();
  }
  for (Lane& lane : lanes_) core::join_or_detach(lane.thread);
}

}  // namespace hookline::hierarchical
