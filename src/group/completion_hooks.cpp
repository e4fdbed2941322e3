// CompletionHooks: one queue per hook, so that its calls are ordered and do not overlap.
#include <hookline/group/completion_hooks.hpp>

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hookline/backend/backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/forwarding_work.hpp"
#include "backend/op_traits.hpp"
#include "core/op_tag.hpp"

namespace hookline {

WorkInfo describe_work(const Operation& operation) {
  const auto& counted = operation.inputs.empty() ? operation.outputs : operation.inputs;
  WorkInfo info;
  info.op_type = operation.type;
  info.lane = current_context().lane;
  const std::uint64_t note = operation.op_tag != 0 ? operation.op_tag : current_context().op_tag;
  info.bucket = core::bucket_of(note).value_or(0);
  info.bytes = std::accumulate(counted.begin(), counted.end(), std::size_t{0},
                               [](std::size_t sum, const Tensor& t) { return sum + t.nbytes(); });
  return info;
}

/// Time that the wait() of a failed operation waits for its hooks.
constexpr Milliseconds kHookGrace{5000};

/// A hook and its queue. The thread that finds the queue idle runs the hook until the queue is empty; other threads
/// only enqueue. The mutex of State guards all fields but `hook` and `executor`, which are constant, and `runner`.
struct CompletionHooks::Queue {
  OnCompletionHook hook;
  std::shared_ptr<Executor> executor;
  std::deque<std::shared_ptr<HookedWork>> pending;
  bool running = false;
  std::atomic<std::thread::id> runner;

  bool runs_on_this_thread() const noexcept {
    return runner.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
};

struct CompletionHooks::State {
  std::mutex mutex;
  std::condition_variable hooks_done;
  std::shared_ptr<const Queues> queues = std::make_shared<const Queues>();  ///< copy-on-write: replaced, never modified
  HookedWork* outstanding = nullptr;  ///< intrusive list; the completion callback of its operation owns each work
  std::array<Clock::time_point, Capabilities::kMaxLanes> lane_last_finished{};  ///< end of the last operation, by lane
  int waiters = 0;
  bool expedite = false;  ///< a hook runs on an executor: operations must complete without a waiting thread
  std::vector<std::pair<const HookedWork*, std::exception_ptr>>
      unreported_errors;  ///< hook exceptions that no wait() has thrown; a null key means that the work was destroyed
};

class CompletionHooks::HookedWork final : public backend::ForwardingWork {
 public:
  HookedWork(std::shared_ptr<State> state, WorkInfo info, WorkPtr inner, std::shared_ptr<const Queues> queues)
      : ForwardingWork(std::move(inner)), state_(std::move(state)), info_(std::move(info)), queues_(std::move(queues)) {
    info_.seq = inner_->sequence_number();
  }
  HookedWork(const HookedWork&) = delete;
  HookedWork& operator=(const HookedWork&) = delete;
  ~HookedWork() override {
    const bool hooks_done = hooks_done_.load(std::memory_order_acquire);
    if (hooks_done && !error_) return;
    const std::lock_guard lock(state_->mutex);
    if (!hooks_done) remove();  // the operation never completed
    for (auto& [work, error] : state_->unreported_errors) {
      if (work == this) work = nullptr;  // a new work may reuse the address
    }
  }

  /// Links into the outstanding list. insert() and remove() require the lock.
  void insert() {
    next_ = state_->outstanding;
    if (next_) next_->previous_ = this;
    state_->outstanding = this;
    linked_ = true;
  }
  void remove() {
    if (!std::exchange(linked_, false)) return;
    (previous_ ? previous_->next_ : state_->outstanding) = next_;
    if (next_) next_->previous_ = previous_;
  }
  HookedWork* next() const noexcept { return next_; }

  /// Called when the operation has completed: queues this work for every hook and runs the hooks that are idle.
  void run_hooks(const std::shared_ptr<HookedWork>& self) {
    info_.time_started = inner_->time_started();
    info_.time_finished = inner_->time_finished();
    info_.error = inner_->exception();
    const std::size_t count = queues_->size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::shared_ptr<Queue>& queue = (*queues_)[i];
      {
        const std::lock_guard lock(state_->mutex);
        if (i == 0) record_activity();
        if (std::exchange(queue->running, true)) {
          queue->pending.push_back(self);
          continue;
        }
      }
      if (!queue->executor) {
        run_queue(*state_, *queue, self);
      } else {
        queue->executor->post([state = state_, queue, self] { run_queue(*state, *queue, self); });
      }
    }
  }

  void wait(std::optional<Milliseconds> timeout) override {
    const auto deadline = timeout ? deadline_after(*timeout) : Clock::time_point::max();
    try {
      inner_->wait(timeout);
    } catch (...) {
      if (inner_->is_completed()) wait_for_hooks_after_failure();
      throw;
    }
    if (hooks_done_.load(std::memory_order_acquire)) {
      if (error_) rethrow();
      return;
    }
    wait_for_hooks(timeout ? deadline : deadline_after(kDefaultTimeout));
    rethrow();
  }
  Future<std::vector<Tensor>> get_future() override { return future_after_hooks(inner_->get_future()); }
  bool is_completed() override {
    return inner_->is_completed() && (hooks_done_.load(std::memory_order_acquire) || called_from_hook());
  }
  std::exception_ptr exception() override {
    if (auto error = inner_->exception()) return error;
    return hooks_done_.load(std::memory_order_acquire) ? error_ : nullptr;
  }

  /// Blocks until the operation has completed, successfully or not.
  void wait_for_operation(Milliseconds timeout) {
    try {
      inner_->wait(timeout);
    } catch (const Error&) {
      if (!inner_->is_completed()) throw;  // interrupted or timed out
    }
  }

  /// Blocks until the hooks have run. Returns immediately when called from one of them.
  void wait_for_hooks(Clock::time_point deadline) {
    if (hooks_done_.load(std::memory_order_acquire) || called_from_hook()) return;
    const auto hooks_done = [&] { return hooks_done_.load(std::memory_order_relaxed); };
    std::exception_ptr failure;
    std::unique_lock lock(state_->mutex);
    ++state_->waiters;
    while (!failure &&
           !state_->hooks_done.wait_for(lock, std::min(kInterruptPeriod, time_left(deadline)), hooks_done)) {
      lock.unlock();
      try {
        check_interrupt();
        if (time_left(deadline) == Milliseconds(0)) {
          throw Timeout(
              fmt::format("{} (number {}) completed, but its completion hooks did not return before the timeout. "
                          "Shorten the hooks, or pass a longer timeout.",
                          name(info_.op_type), info_.seq));
        }
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
    }
    --state_->waiters;
    if (failure) std::rethrow_exception(failure);
  }

 private:
  /// Hooks of a failed operation run before its error is thrown, but a hook that hangs must not hide the error.
  void wait_for_hooks_after_failure() {
    try {
      wait_for_hooks(deadline_after(kHookGrace));
    } catch (const Timeout&) {
    }
  }

  /// Runs the hook for this work, then for works queued in the meantime.
  static void run_queue(State& state, Queue& queue, std::shared_ptr<HookedWork> work) {
    queue.runner.store(std::this_thread::get_id(), std::memory_order_relaxed);
    while (work) {
      std::exception_ptr error;
      try {
        queue.hook(work->info_);
      } catch (...) {
        error = std::current_exception();
      }
      std::vector<Task> tasks;
      std::shared_ptr<HookedWork> next;
      {
        const std::lock_guard lock(state.mutex);
        work->finish_hook(std::move(error), tasks);
        if (queue.pending.empty()) {
          queue.runner.store(std::thread::id(), std::memory_order_relaxed);
          queue.running = false;
        } else {
          next = std::move(queue.pending.front());
          queue.pending.pop_front();
        }
      }
      for (Task& task : tasks) task();
      work = std::move(next);
    }
  }

  // record_activity() and finish_hook() require the lock.
  void record_activity() {
    Clock::time_point from = info_.time_started;
    if (!backend::is_point_to_point(info_.op_type)) {
      Clock::time_point& last_finished =
          state_->lane_last_finished[static_cast<std::size_t>(info_.lane) % state_->lane_last_finished.size()];
      from = std::max(from, last_finished);
      last_finished = info_.time_finished;
    }
    info_.active_duration = info_.time_finished - std::min(from, info_.time_finished);
    pending_hooks_ = queues_->size();
  }
  void finish_hook(std::exception_ptr error, std::vector<Task>& tasks) {
    if (error && !error_) {
      error_ = std::move(error);
      state_->unreported_errors.emplace_back(this, error_);
    }
    if (--pending_hooks_ > 0) return;
    hooks_done_.store(true, std::memory_order_release);
    remove();
    tasks.swap(continuations_);
    if (state_->waiters > 0) state_->hooks_done.notify_all();
  }

  // True if this thread is running one of this work's hooks, for this or another work. Waiting for the hooks would
  // deadlock.
  bool called_from_hook() const noexcept {
    for (const auto& queue : *queues_) {
      if (queue->runs_on_this_thread()) return true;
    }
    return false;
  }

  void rethrow() {
    if (!hooks_done_.load(std::memory_order_acquire) || !error_) return;
    mark_reported();
    std::rethrow_exception(error_);
  }
  void mark_reported() {
    const std::lock_guard lock(state_->mutex);
    std::erase_if(state_->unreported_errors, [&](const auto& entry) { return entry.first == this; });
  }

  Future<std::vector<Tensor>> future_after_hooks(Future<std::vector<Tensor>> future) {
    Promise<std::vector<Tensor>> promise;
    auto result = promise.get_future();
    future.on_done([future, self = shared_from_this(), this, promise = std::move(promise)]() mutable {
      Task finish = [future, self, this, promise = std::move(promise)]() mutable {
        promise.set_from([&] {
          auto value = future.value();
          rethrow();
          return value;
        });
      };
      {
        const std::lock_guard lock(state_->mutex);
        if (!hooks_done_.load(std::memory_order_relaxed)) {
          continuations_.push_back(std::move(finish));
          return;
        }
      }
      finish();
    });
    return result;
  }

  const std::shared_ptr<State> state_;
  WorkInfo info_;
  const std::shared_ptr<const Queues> queues_;
  std::atomic<bool> hooks_done_ = false;
  std::size_t pending_hooks_ = 0;
  HookedWork* next_ = nullptr;
  HookedWork* previous_ = nullptr;
  bool linked_ = false;
  std::exception_ptr error_;
  std::vector<Task> continuations_;
};

CompletionHooks::CompletionHooks() : state_(std::make_shared<State>()) {}

void CompletionHooks::add(OnCompletionHook hook, std::shared_ptr<Executor> executor) {
  if (!hook) throw InvalidArgument("register_on_completion_hook: hook must not be empty");
  auto queue = std::make_shared<Queue>();
  queue->hook = std::move(hook);
  queue->executor = std::move(executor);
  const std::lock_guard lock(state_->mutex);
  state_->expedite = state_->expedite || queue->executor;
  auto queues = std::make_shared<Queues>(*state_->queues);
  queues->push_back(std::move(queue));
  state_->queues = std::move(queues);
  any_.store(true, std::memory_order_relaxed);
}

WorkPtr CompletionHooks::attach(WorkInfo info, const WorkPtr& work) {
  std::shared_ptr<HookedWork> hooked;
  bool expedite;
  {
    const std::lock_guard lock(state_->mutex);
    hooked = std::make_shared<HookedWork>(state_, std::move(info), work, state_->queues);
    hooked->insert();
    expedite = state_->expedite;
  }
  work->on_complete([hooked] { hooked->run_hooks(hooked); }, expedite ? Urgency::high : Urgency::low);
  return hooked;
}

void CompletionHooks::wait(Milliseconds timeout) {
  const auto deadline = deadline_after(timeout);
  std::vector<std::shared_ptr<HookedWork>> outstanding;
  {
    const std::lock_guard lock(state_->mutex);
    for (HookedWork* work = state_->outstanding; work; work = work->next()) {
      // lock() fails for a work in destruction, whose callback was dropped because its operation never completed.
      if (auto alive = work->weak_from_this().lock()) {
        outstanding.push_back(std::static_pointer_cast<HookedWork>(std::move(alive)));
      }
    }
  }
  for (const auto& work : outstanding) {
    work->wait_for_operation(time_left(deadline));
    work->wait_for_hooks(deadline);
  }
  decltype(state_->unreported_errors) errors;
  {
    const std::lock_guard lock(state_->mutex);
    errors.swap(state_->unreported_errors);
  }
  if (!errors.empty()) std::rethrow_exception(errors.front().second);
}

}  // namespace hookline
