// LocalContext: starts and drives operations; the progress thread drives those that no thread waits for.
#include "backend/local/local_context.hpp"

#include <sched.h>

#include <bit>
#include <optional>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/local/futex_event.hpp"
#include "core/fork.hpp"
#include "core/thread.hpp"

namespace hookline::local {
namespace {

constexpr Milliseconds kMaxIdleWait{100};

// The time for which the progress thread leaves a new operation to a waiting thread. While operations keep coming, it
// polls at this interval instead of blocking, because a wake-up costs more than many operations. After kIdlePolls idle
// polls it blocks until it is woken: by the start of an operation, by the last waiting thread if operations are still
// pending, or by a new callback.
constexpr std::chrono::microseconds kIdlePollInterval{200};
constexpr std::chrono::microseconds kIdlePollIntervalWithWaiter{1000};
constexpr int kIdlePolls = 8;

void publish_cpu_affinity(RankBlock& mine) {
  static_assert(sizeof(cpu_set_t) == sizeof mine.cpu_affinity);
  if (sched_getaffinity(0, sizeof mine.cpu_affinity, reinterpret_cast<cpu_set_t*>(mine.cpu_affinity.data())) != 0)
    mine.cpu_affinity.fill(~0UL);
}

// Counts the cores of all ranks together, since a launcher may bind each rank to its own core.
bool has_core_per_rank(Memory& memory) {
  int cores = 0;
  for (std::size_t word = 0; word < kMaxCores / 64; ++word) {
    std::uint64_t union_mask = 0;
    for (int r = 0; r < memory.size(); ++r) union_mask |= memory.block(r).cpu_affinity[word];
    cores += std::popcount(union_mask);
  }
  return cores >= memory.size();
}

}  // namespace

class LocalContext::LaneOp final : public LocalOp {
 public:
  LaneOp(std::shared_ptr<LocalContext> context, std::uint64_t sequence, Milliseconds timeout, int lane, Operation&& op)
      : LocalOp(context, timeout, std::move(op)),
        sequence_(sequence),
        lane_(context->lanes_[static_cast<std::size_t>(lane)]),
        collective_(context->memory(), lane, lane_.scratch, operation()) {}

  bool step() override {
    if (!begun_) {
      coroutine_ = collective_.run(sequence_, lane_.rounds);
      begun_ = true;
    }
    if (!coroutine_.step()) return false;
    lane_.rounds += collective_.rounds();
    return true;
  }
  std::uint64_t progress() const override { return collective_.progress(); }
  std::vector<int> awaited_ranks() const override { return collective_.awaited_ranks(); }
  std::string describe() const override { return fmt::format("{} (number {})", collective_.describe(), sequence_); }
  bool fits_inline() const { return collective_.fits_inline(); }

 private:
  const std::uint64_t sequence_;  ///< in its lane
  Lane& lane_;
  CollectiveOp collective_;
  StepCoroutine coroutine_;
  bool begun_ = false;
};

// An operation started on an unusable group. It is complete from the start.
class LocalContext::FailedOp final : public LocalOp {
 public:
  static std::shared_ptr<LocalOp> make(std::shared_ptr<LocalContext> context, Operation&& operation,
                                       const std::exception_ptr& cause) {
    auto op = std::make_shared<FailedOp>(std::move(context), kMaxTimeout, std::move(operation));
    op->complete(cause);
    return op;
  }
  using LocalOp::LocalOp;
  bool step() override { return true; }
  std::uint64_t progress() const override { return 0; }
  std::vector<int> awaited_ranks() const override { return {}; }
  std::string describe() const override { return "an operation of a failed group"; }
};

LocalContext::LocalContext(std::unique_ptr<Memory> memory, LocalContextOptions options)
    : memory_(std::move(memory)),
      options_(std::move(options)),
      fork_generation_(core::fork_generation()),
      mailboxes_(*memory_) {
  for (Lane& lane : lanes_) lane.scratch.set_size(memory_->size());
}

LocalContext::~LocalContext() { close(); }

void LocalContext::open() {
  publish_cpu_affinity(memory_->block(memory_->rank()));
  if (options_.progress_thread) {
    std::unique_lock lock(progress_mutex_);
    progress_thread_ =
        core::start_thread("hookline-drive", [self = shared_from_this()] { self->run_progress_thread(); });
    progress_wake_.wait(lock, [&] { return memory_->block(memory_->rank()).state.load() == RankState::active; });
  } else {
    memory_->block(memory_->rank()).state.store(RankState::active);
  }
}

void LocalContext::close() noexcept {
  if (fork_generation_ != core::fork_generation()) {
    // The threads exist only in the parent, so their mutexes and condition variables cannot be destroyed: leak all.
    if (progress_thread_.joinable()) progress_thread_.detach();
    leaked_self_ = weak_from_this().lock();
    return;
  }
  {
    const std::lock_guard lock(state_mutex_);
    if (std::exchange(closed_, true)) return;
    is_unusable_.store(true, std::memory_order_seq_cst);
    if (!error_) memory_->block(memory_->rank()).state.store(RankState::left, std::memory_order_seq_cst);
  }
  notify_peers(*memory_);
  fail_pending(std::make_exception_ptr(Aborted(
      fmt::format("the {} group was shut down on rank {} before the operation completed", name(), memory_->rank()))));
  {
    const std::lock_guard lock(progress_mutex_);
    stopping_ = true;
  }
  progress_wake_.notify_all();
  notify_self();
  core::join_or_detach(progress_thread_);
  std::unique_ptr<ThreadExecutor> worker;  // destroyed without the lock, since its last tasks may post others
  const std::lock_guard lock(worker_mutex_);
  worker.swap(worker_);
}

void LocalContext::refuse_in_forked_child(std::string_view call) const {
  if (fork_generation_ == core::fork_generation()) return;
  throw InvalidArgument(fmt::format(
      "{} on a {} group that was made before fork(). Create a new group in the child process.", call, name()));
}

std::shared_ptr<LocalOp> LocalContext::start(Operation&& operation, int lane_index, Milliseconds timeout) {
  refuse_in_forked_child(hookline::name(operation.type));
  if (const std::exception_ptr cause = unusable_error()) {
    return FailedOp::make(shared_from_this(), std::move(operation), cause);
  }
  const OpType type = operation.type;
  std::shared_ptr<LocalOp> op;
  bool background = true;
  if (type == OpType::send) {
    op = std::make_shared<SendOp>(shared_from_this(), timeout, mailboxes_, std::move(operation));
    mailboxes_.post(op);
    while (drive_mailboxes()) {
    }
  } else if (type == OpType::recv || type == OpType::recv_anysource) {
    op = std::make_shared<RecvOp>(shared_from_this(), timeout, mailboxes_, std::move(operation));
    mailboxes_.post(op);
    drive_mailboxes();
  } else {
    Lane& lane = lanes_[static_cast<std::size_t>(lane_index)];
    std::shared_ptr<LaneOp> collective;
    bool first;
    bool locked;
    {
      const std::lock_guard lock(lane.mutex);
      const std::uint64_t sequence = lane.submitted.load(std::memory_order_relaxed) + 1;
      collective = std::make_shared<LaneOp>(shared_from_this(), sequence, timeout, lane_index, std::move(operation));
      first = lane.idle();
      locked = first && lane.driver_lock.try_lock();
      if (locked) {  // the usual case
        lane.current = collective;
      } else {
        lane.queue.push_back(collective);
      }
      lane.submitted.store(sequence, std::memory_order_seq_cst);
    }
    drive_lane(lane, locked);
    // A small operation needs no further steps of this rank for its peers to complete; others need a driver.
    background = !first || !collective->fits_inline();
    op = std::move(collective);
  }
  if (const std::exception_ptr cause = unusable_error()) fail_pending(cause);  // the group has failed meanwhile
  if (background && !op->done()) {
    operation_started_.store(true, std::memory_order_seq_cst);
    if (progress_asleep_.load(std::memory_order_seq_cst)) wake_progress_thread();
    notify_self();  // a driver may sleep although peers have already posted their part
  }
  return op;
}

bool LocalContext::drive() {
  bool progressed = false;
  for (Lane& lane : lanes_) {
    if (!lane.idle()) progressed = drive_lane(lane) || progressed;
  }
  return drive_mailboxes() || progressed;
}

// With `locked`, the caller already holds the driver lock. Returns with the lock released.
bool LocalContext::drive_lane(Lane& lane, bool locked) {
  bool progressed = false;
  std::uint64_t seen;
  do {
    if (!std::exchange(locked, false) && !lane.driver_lock.try_lock()) return progressed;
    seen = lane.submitted.load(std::memory_order_seq_cst);
    std::exception_ptr fatal;
    progressed = step_lane(lane, fatal) || progressed;
    release(lane.driver_lock, fatal);
  } while (lane.submitted.load(std::memory_order_seq_cst) != seen);
  return progressed;
}

// Steps the lane's operations in order until one of them is not done. Requires the driver lock.
bool LocalContext::step_lane(Lane& lane, std::exception_ptr& fatal) {
  bool progressed = false;
  for (bool done = true; done && !fatal && !is_unusable_.load(std::memory_order_relaxed);) {
    if (!lane.current) {
      if (lane.idle()) break;
      const std::lock_guard lock(lane.mutex);
      lane.current = std::move(lane.queue.front());
      lane.queue.pop_front();
    }
    const std::uint64_t before = lane.current->progress();
    std::exception_ptr error;
    try {
      done = lane.current->step();
    } catch (const Mismatch&) {
      error = std::current_exception();
    } catch (...) {
      error = fatal = std::current_exception();
    }
    progressed = progressed || done || lane.current->progress() != before;
    if (done) {
      const auto op = std::exchange(lane.current, nullptr);
      lane.completed.store(lane.completed.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      op->complete(error);
    }
  }
  return progressed;
}

bool LocalContext::drive_mailboxes() {
  if (mailboxes_.empty() || !mailboxes_lock_.try_lock()) return false;
  std::exception_ptr fatal;
  bool progressed = true;
  try {
    progressed = mailboxes_.step();
  } catch (...) {
    fatal = std::current_exception();
  }
  release(mailboxes_lock_, fatal);
  return progressed;
}

bool LocalContext::may_spin() {
  SpinDecision known = spin_decision_.load(std::memory_order_relaxed);
  if (known == SpinDecision::unknown) {
    for (int r = 0; r < memory_->size(); ++r) {
      if (memory_->block(r).state.load(std::memory_order_acquire) == RankState::joining) return false;
    }
    known = has_core_per_rank(*memory_) ? SpinDecision::yes : SpinDecision::no;
    spin_decision_.store(known, std::memory_order_relaxed);
  }
  return known == SpinDecision::yes;
}

template <class Done>
void LocalContext::drive_until(Done done, Clock::time_point deadline) {
  Backoff backoff(first_backoff_phase());
  std::optional<Clock::time_point> next_poll;
  while (!done()) {
    if (drive()) {
      backoff.reset();
      continue;
    }
    if (done() || backoff.pause()) continue;
    {
      FutexWaiter sleep(memory_->block(memory_->rank()));
      if (drive() || done()) continue;
      if (!next_poll) next_poll = Clock::now() + kMaxIdleWait;
      sleep.wait(std::min(kMaxIdleWait, time_left(deadline)));
    }
    check_interrupt();
    // A notification usually means progress. check_peers() costs time for each peer, so it waits until there is no
    // progress, or until it is due.
    if (drive() && Clock::now() < *next_poll) {
      backoff.reset();
      continue;
    }
    check_peers();
    next_poll = Clock::now() + kMaxIdleWait;
  }
}

void LocalContext::wait_for(const LocalOp& op) {
  waiting_threads_.fetch_add(1, std::memory_order_seq_cst);
  try {
    drive_until([&] { return op.done(); }, op.deadline());
  } catch (...) {  // interrupted: the operation continues without this thread
    waiting_threads_.fetch_sub(1, std::memory_order_seq_cst);
    wake_progress_thread();
    throw;
  }
  if (waiting_threads_.fetch_sub(1, std::memory_order_seq_cst) == 1 && has_pending()) wake_progress_thread();
}

void LocalContext::run_progress_thread() {
  RankBlock& mine = memory_->block(memory_->rank());
  memory_->hold_liveness_lock();
  {
    const std::lock_guard lock(progress_mutex_);
    mine.state.store(RankState::active, std::memory_order_seq_cst);
  }
  progress_wake_.notify_all();
  int idle_polls = 0;
  while (!stopping_) {
    idle_polls = idle_wait(idle_polls);
    drive_until([&] { return stopping_ || !has_pending() || has_waiter(); }, Clock::time_point::max());
  }
  memory_->release_liveness_lock();
}

// Blocks until the next poll is due. Returns the number of consecutive idle polls.
int LocalContext::idle_wait(int idle_polls) {
  std::unique_lock lock(progress_mutex_);
  const auto must_wake = [&] { return stopping_ || (progress_requested_ && !has_waiter()); };
  const bool active = operation_started_.exchange(false, std::memory_order_seq_cst) || (has_pending() && !has_waiter());
  idle_polls = active ? 0 : idle_polls + 1;
  if (idle_polls < kIdlePolls) {
    progress_wake_.wait_for(lock, has_waiter() ? kIdlePollIntervalWithWaiter : kIdlePollInterval, must_wake);
  } else {
    progress_asleep_.store(true, std::memory_order_seq_cst);
    progress_wake_.wait(lock, [&] { return must_wake() || operation_started_.load(std::memory_order_seq_cst); });
    progress_asleep_.store(false, std::memory_order_seq_cst);
    idle_polls = 0;
  }
  progress_requested_ = false;
  return idle_polls;
}

void LocalContext::wake_progress_thread() {
  {
    const std::lock_guard lock(progress_mutex_);
    progress_requested_ = true;
  }
  progress_wake_.notify_all();
}

bool LocalContext::has_pending() const noexcept {
  for (const Lane& lane : lanes_) {
    if (!lane.idle()) return true;
  }
  return !mailboxes_.empty();
}

void LocalContext::notify_self() noexcept { notify(memory_->block(memory_->rank())); }

void LocalContext::post_to_worker(Task task) {
  const std::lock_guard lock(worker_mutex_);
  if (!worker_) worker_ = std::make_unique<ThreadExecutor>("hookline-worker");
  worker_->post(std::move(task));
}

}  // namespace hookline::local
