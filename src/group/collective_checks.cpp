// The group that runs collectives after a signature check. Each lane has a thread, so lanes do not block each other.
#include <hookline/group/collective_checks.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <hookline/backend/backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/group/arguments.hpp>
#include <hookline/group/coalescing.hpp>
#include <hookline/group/decorator.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/forwarding_work.hpp"
#include "backend/op_traits.hpp"
#include "core/op_tag.hpp"
#include "group/abort_quietly.hpp"
#include "group/checked_state.hpp"
#include "group/compare_signatures.hpp"
#include "group/p2p_checker.hpp"

namespace hookline {
namespace {

using OutputsFuture = Future<std::vector<Tensor>>;
using backend::is_point_to_point;
using group::CheckedState;

/// Per-thread state for the InterruptScope of a lane thread: its group, and the time of the next poll for an abort.
struct LaneThreadState {
  CheckedState* state = nullptr;
  Clock::time_point next_poll;
};
thread_local LaneThreadState lane_thread_state;
void throw_if_aborted() { lane_thread_state.state->poll_abort(lane_thread_state.next_poll); }

class CheckedWork final : public backend::ForwardingWork {
 public:
  CheckedWork(OutputsFuture outputs, std::weak_ptr<ProcessGroup> group, OpType type, std::uint64_t sequence,
              std::shared_ptr<std::atomic<int>> source_rank)
      : ForwardingWork(make_work(outputs, type, sequence)),
        outputs_(std::move(outputs)),
        group_(std::move(group)),
        source_rank_(std::move(source_rank)) {}

  void wait(std::optional<Milliseconds> timeout) override {
    const auto deadline = timeout ? deadline_after(*timeout) : Clock::time_point::max();
    if (!outputs_.wait_until(deadline)) {
      const std::string text = fmt::format("{} (number {}) did not complete within {} ms", name(op_type()),
                                           sequence_number(), timeout->count());
      if (const auto group = group_.lock()) group::abort_quietly(*group, text);
      outputs_.wait_until(Clock::time_point::max());  // the tensors must not be touched after wait() returns
      throw Timeout(text);
    }
    outputs_.value();
  }
  int source_rank() const override { return source_rank_ ? source_rank_->load(std::memory_order_acquire) : -1; }

 private:
  const OutputsFuture outputs_;
  const std::weak_ptr<ProcessGroup> group_;              // the checked group; works do not keep it alive
  const std::shared_ptr<std::atomic<int>> source_rank_;  // set for point-to-point operations only
};

bool breaks_group(const Error& e) {
  return dynamic_cast<const Timeout*>(&e) || dynamic_cast<const PeerLost*>(&e) || dynamic_cast<const Aborted*>(&e);
}

/// Runs one collective on a lane thread: compares signatures, then runs it on the inner group.
std::vector<Tensor> run_checked(CheckedState& state, Store& store, Operation operation, const CallContext& context,
                                std::uint64_t number, Clock::time_point deadline) {
  lane_thread_state = {&state, deadline_after(kInterruptPeriod)};
  const InterruptScope scope(&throw_if_aborted);
  state.throw_if_closed();
  const group::CheckPoint check_point{.store = store,
                                      .rank = state.inner->rank(),
                                      .size = state.inner->size(),
                                      .key = fmt::format("checked/{}/{}", context.lane, number),
                                      .label = fmt::format("number {} of lane {}", number, context.lane)};
  std::string signature = group::signature_text(operation);
  const std::uint64_t op_tag = operation.op_tag != 0 ? operation.op_tag : context.op_tag;
  if (op_tag != 0) signature += fmt::format(" ({})", core::describe_op_tag(op_tag));
  try {
    group::compare_signatures(check_point, signature, deadline);
  } catch (const Timeout& e) {
    group::abort_quietly(*state.inner, e.what());
    state.abort_all(std::current_exception(), e.what());
    throw;
  }
  lane_thread_state.next_poll = Clock::time_point::max();  // from here on the inner group detects peer failures
  operation.timeout = time_left(deadline);
  const ContextScope caller_context(context);
  try {
    const WorkPtr work = state.inner->run(std::move(operation));
    work->wait();
    return work->result();
  } catch (const Error& e) {
    if (breaks_group(e)) state.close(std::current_exception());
    throw;
  }
}

/// A lane's thread and its own store connection: a wait in the store must not block other lanes.
struct LaneThread {
  std::shared_ptr<group::LazyStoreClone> store_clone;
  std::unique_ptr<ThreadExecutor> executor;
  std::uint64_t num_collectives = 0;
};

class CheckedGroup final : public GroupDecorator {
 public:
  CheckedGroup(std::shared_ptr<ProcessGroup> group, std::shared_ptr<Store> store)
      : GroupDecorator(std::move(group)), state_(std::make_shared<CheckedState>(inner(), std::move(store))) {
    if (!state_->store) {
      throw InvalidArgument("with_collective_checks: store must not be null; pass a store that all ranks share");
    }
  }
  CheckedGroup(const CheckedGroup&) = delete;
  CheckedGroup& operator=(const CheckedGroup&) = delete;
  ~CheckedGroup() override {
    state_->close();
    const std::lock_guard lock(mutex_);
    p2p_.reset();
    for (auto& lane : lanes_) lane.executor.reset();
  }

  WorkPtr run(Operation operation) override {
    const std::uint64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
    WorkPtr work = size() == 1 ? inner()->run(std::move(operation)) : start(std::move(operation), sequence);
    if (coalescing_.active()) coalescing_.add(work);
    return work;
  }

  void start_coalescing() override { coalescing_.start(); }
  WorkPtr end_coalescing() override { return coalescing_.end(); }
  void coalesce(const WorkPtr& work) override { coalescing_.add(work); }
  void abort(const std::string& cause) override {
    const Aborted aborted(fmt::format("rank {} aborted the checked group: {}", rank(), cause));
    try {
      inner()->abort(cause);
    } catch (...) {
      state_->abort_all(std::make_exception_ptr(aborted), cause);
      throw;
    }
    state_->abort_all(std::make_exception_ptr(aborted), cause);
  }
  void shutdown() override {
    state_->close();
    inner()->shutdown();
  }
  std::uint64_t sequence_number() const override { return sequence_.load(std::memory_order_relaxed); }

 protected:
  std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string& label) override {
    return with_collective_checks(std::move(group), std::make_shared<PrefixStore>(label, state_->store));
  }

 private:
  WorkPtr start(Operation operation, std::uint64_t sequence) {
    check_arguments(operation, rank(), size());
    const OpType type = operation.type;
    std::shared_ptr<std::atomic<int>> source_rank;
    if (is_point_to_point(type)) source_rank = std::make_shared<std::atomic<int>>(-1);
    auto outputs = post(std::move(operation), source_rank);
    return std::make_shared<CheckedWork>(std::move(outputs), weak_from_this(), type, sequence, std::move(source_rank));
  }

  OutputsFuture post(Operation operation, const std::shared_ptr<std::atomic<int>>& source_rank) {
    const auto deadline = deadline_after(operation.timeout.value_or(timeout()));
    const CallContext& context = current_context();
    const std::lock_guard lock(mutex_);
    if (is_point_to_point(operation.type)) {
      if (!p2p_) p2p_ = std::make_unique<group::P2PChecker>(state_);
      return p2p_->post(std::move(operation), deadline, source_rank);
    }
    LaneThread& lane = lanes_.at(static_cast<std::size_t>(context.lane));
    if (!lane.executor) {
      lane.executor = std::make_unique<ThreadExecutor>("hookline-checks");
      lane.store_clone = std::make_shared<group::LazyStoreClone>(state_->store);
    }
    Promise<std::vector<Tensor>> promise;
    auto outputs = promise.get_future();
    lane.executor->post([parts = state_, store = lane.store_clone, operation = std::move(operation),
                         promise = std::move(promise), deadline, context, number = ++lane.num_collectives]() mutable {
      promise.set_from([&] { return run_checked(*parts, **store, std::move(operation), context, number, deadline); });
    });
    return outputs;
  }

  const std::shared_ptr<CheckedState> state_;
  std::atomic<std::uint64_t> sequence_ = 0;
  Coalescing coalescing_;
  std::mutex mutex_;
  std::unique_ptr<group::P2PChecker> p2p_;
  std::array<LaneThread, Capabilities::kMaxLanes> lanes_;
};

}  // namespace

std::shared_ptr<ProcessGroup> with_collective_checks(std::shared_ptr<ProcessGroup> group,
                                                     std::shared_ptr<Store> store) {
  return std::make_shared<CheckedGroup>(std::move(group), std::move(store));
}

}  // namespace hookline
