// LocalContext: starts and drives operations; the progress thread drives those that no thread waits for.
#include "backend/embedded/engine.hpp"

#include <sched.h>

#include <bit>
#include <optional>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/embedded/bell.hpp"
#include "core/fork.hpp"
#include "core/thread.hpp"

namespace hookline::embedded {
namespace {

constexpr Milliseconds kLongestSleep{100};

// How long an operation for which nobody waits may lie before the progress thread sees to it. While operations come,
// the thread looks again that often by itself: waking it costs more than many an operation, and who waits at once does
// not need it. After kDozes looks at which there was nothing to do it sleeps until it is woken: by the start of an
// operation, by the last thread that waited and leaves something pending, or by somebody who attached a task.
constexpr std::chrono::microseconds kDoze{200};
constexpr std::chrono::microseconds kDozeBesideWaiter{1000};
constexpr int kDozes = 8;

void note_cores(RankBlock& mine) {
  static_assert(sizeof(cpu_set_t) == sizeof mine.cores);
  if (sched_getaffinity(0, sizeof mine.cores, reinterpret_cast<cpu_set_t*>(mine.cores.data())) != 0)
    mine.cores.fill(~0UL);
}

// A launcher may have bound each rank to a core of its own: what counts is what they have together.
bool enough_cores(Memory& memory) {
  int cores = 0;
  for (std::size_t word = 0; word < kMaxCores / 64; ++word) {
    std::uint64_t together = 0;
    for (int r = 0; r < memory.size(); ++r) together |= memory.block(r).cores[word];
    cores += std::popcount(together);
  }
  return cores >= memory.size();
}

}  // namespace

class Engine::LaneOperation final : public Pending {
 public:
  LaneOperation(std::shared_ptr<Engine> engine, std::uint64_t number, Milliseconds timeout, int lane, Collective&& what)
      : Pending(engine, timeout, std::move(what)),
        number_(number),
        lane_(engine->lanes_[static_cast<std::size_t>(lane)]),
        exchange_(engine->memory(), lane, lane_.scratch, collective()) {}

  bool step() override {
    if (!begun_) {
      steps_ = exchange_.run(number_, lane_.rounds);
      begun_ = true;
    }
    if (!steps_.step()) return false;
    lane_.rounds += exchange_.rounds();
    return true;
  }
  std::uint64_t moves() const override { return exchange_.moves(); }
  std::vector<int> awaited() const override { return exchange_.awaited(); }
  std::string describe() const override { return fmt::format("{} (number {})", exchange_.describe(), number_); }
  bool fits_slots() const { return exchange_.fits_slots(); }

 private:
  const std::uint64_t number_;  ///< in its lane
  Lane& lane_;
  Exchange exchange_;
  Steps steps_;
  bool begun_ = false;
};

// An operation of a group that can do no more: over from the start.
class Engine::Ended final : public Pending {
 public:
  static std::shared_ptr<Pending> make(std::shared_ptr<Engine> engine, Collective&& what,
                                       const std::exception_ptr& cause) {
    auto ended = std::make_shared<Ended>(std::move(engine), kLongestTimeout, std::move(what));
    ended->complete(cause);
    return ended;
  }
  using Pending::Pending;
  bool step() override { return true; }
  std::uint64_t moves() const override { return 0; }
  std::vector<int> awaited() const override { return {}; }
  std::string describe() const override { return "an operation of a failed group"; }
};

Engine::Engine(std::unique_ptr<Memory> memory, EngineOptions options)
    : memory_(std::move(memory)),
      options_(std::move(options)),
      fork_generation_(core::fork_generation()),
      mail_(*memory_) {
  for (Lane& lane : lanes_) lane.scratch.set_size(memory_->size());
}

Engine::~Engine() { close(); }

void Engine::open() {
  note_cores(memory_->block(memory_->rank()));
  if (options_.progress_thread) {
    std::unique_lock lock(progress_mutex_);
    progress_thread_ =
        core::start_thread("hookline-drive", [self = shared_from_this()] { self->run_progress_thread(); });
    progress_wake_.wait(lock, [&] { return memory_->block(memory_->rank()).standing.load() == Standing::present; });
  } else {
    memory_->block(memory_->rank()).standing.store(Standing::present);
  }
}

void Engine::close() noexcept {
  if (fork_generation_ != core::fork_generation()) {
    // The threads live in the parent only, and what they hold or wait on cannot be destroyed here: all of it is leaked.
    if (progress_thread_.joinable()) progress_thread_.detach();
    itself_ = weak_from_this().lock();
    return;
  }
  {
    const std::lock_guard lock(state_mutex_);
    if (std::exchange(closed_, true)) return;
    is_unusable_.store(true, std::memory_order_seq_cst);
    if (!broken_) memory_->block(memory_->rank()).standing.store(Standing::left, std::memory_order_seq_cst);
  }
  ring_peers(*memory_);
  end_all(std::make_exception_ptr(Aborted(fmt::format(
      "the {} group was shut down on rank {} before the operation completed", name(), memory_->rank()))));
  {
    const std::lock_guard lock(progress_mutex_);
    stopping_ = true;
  }
  progress_wake_.notify_all();
  announce();
  core::end_thread(progress_thread_);
  std::unique_ptr<ThreadExecutor> worker;  // ends without the mutex, as its last tasks may post others
  const std::lock_guard lock(worker_mutex_);
  worker.swap(worker_);
}

void Engine::refuse_in_forked_child(std::string_view what) const {
  if (fork_generation_ == core::fork_generation()) return;
  throw InvalidArgument(fmt::format(
      "{} on a {} group that was made before fork(). Make a new group in the child process.", what, name()));
}

std::shared_ptr<Pending> Engine::start(Collective&& collective, int lane_index, Milliseconds timeout) {
  refuse_in_forked_child(hookline::name(collective.type));
  if (const std::exception_ptr cause = why_unusable()) {
    return Ended::make(shared_from_this(), std::move(collective), cause);
  }
  const OpType type = collective.type;
  std::shared_ptr<Pending> operation;
  bool background = true;
  if (type == OpType::send) {
    operation = std::make_shared<Send>(shared_from_this(), timeout, mail_, std::move(collective));
    mail_.post(operation);
    while (drive_mail()) {
    }
  } else if (type == OpType::recv || type == OpType::recv_anysource) {
    operation = std::make_shared<Receive>(shared_from_this(), timeout, mail_, std::move(collective));
    mail_.post(operation);
    drive_mail();
  } else {
    Lane& lane = lanes_[static_cast<std::size_t>(lane_index)];
    std::shared_ptr<LaneOperation> exchange;
    bool first;
    bool claimed;
    {
      const std::lock_guard lock(lane.mutex);
      const std::uint64_t number = lane.pushes.load(std::memory_order_relaxed) + 1;
      exchange =
          std::make_shared<LaneOperation>(shared_from_this(), number, timeout, lane_index, std::move(collective));
      first = lane.idle();
      claimed = first && lane.claim.take();
      if (claimed) {  // the usual case: it need not queue
        lane.current = exchange;
      } else {
        lane.queue.push_back(exchange);
      }
      lane.pushes.store(number, std::memory_order_seq_cst);
    }
    drive_lane(lane, claimed);
    // A small one is posted now and needs nothing more of this rank but to be read; the others need somebody.
    background = !first || !exchange->fits_slots();
    operation = std::move(exchange);
  }
  if (const std::exception_ptr cause = why_unusable()) end_all(cause);  // it broke meanwhile
  if (background && !operation->over()) {
    progress_started_.store(true, std::memory_order_seq_cst);
    if (progress_asleep_.load(std::memory_order_seq_cst)) wake_progress_thread();
    announce();  // a driver may sleep over what else is pending, and no peer will ring for what it has posted already
  }
  return operation;
}

bool Engine::drive() {
  bool moved = false;
  for (Lane& lane : lanes_) {
    if (!lane.idle()) moved = drive_lane(lane) || moved;
  }
  return drive_mail() || moved;
}

// `claimed`: whether the caller holds the claim already, and leaves it to this.
bool Engine::drive_lane(Lane& lane, bool claimed) {
  bool moved = false;
  std::uint64_t seen;
  do {
    if (!std::exchange(claimed, false) && !lane.claim.take()) return moved;
    seen = lane.pushes.load(std::memory_order_seq_cst);
    std::exception_ptr fatal;
    moved = step_lane(lane, fatal) || moved;
    let_go(lane.claim, fatal);
  } while (lane.pushes.load(std::memory_order_seq_cst) != seen);
  return moved;
}

// Steps the lane's operations, in their order, until one of them is not over; under the claim.
bool Engine::step_lane(Lane& lane, std::exception_ptr& fatal) {
  bool moved = false;
  for (bool over = true; over && !fatal && !is_unusable_.load(std::memory_order_relaxed);) {
    if (!lane.current) {
      if (lane.idle()) break;
      const std::lock_guard lock(lane.mutex);
      lane.current = std::move(lane.queue.front());
      lane.queue.pop_front();
    }
    const std::uint64_t before = lane.current->moves();
    std::exception_ptr error;
    try {
      over = lane.current->step();
    } catch (const Mismatch&) {
      error = std::current_exception();
    } catch (...) {
      error = fatal = std::current_exception();
    }
    moved = moved || over || lane.current->moves() != before;
    if (over) {
      const auto ended = std::exchange(lane.current, nullptr);
      lane.ended.store(lane.ended.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      ended->complete(error);
    }
  }
  return moved;
}

bool Engine::drive_mail() {
  if (mail_.empty() || !mail_claim_.take()) return false;
  std::exception_ptr fatal;
  bool moved = true;
  try {
    moved = mail_.step();
  } catch (...) {
    fatal = std::current_exception();
  }
  let_go(mail_claim_, fatal);
  return moved;
}

bool Engine::may_spin() {
  Spinning known = spinning_.load(std::memory_order_relaxed);
  if (known == Spinning::unknown) {
    for (int r = 0; r < memory_->size(); ++r) {
      if (memory_->block(r).standing.load(std::memory_order_acquire) == Standing::absent) return false;
    }
    known = enough_cores(*memory_) ? Spinning::yes : Spinning::no;
    spinning_.store(known, std::memory_order_relaxed);
  }
  return known == Spinning::yes;
}

template <class Over>
void Engine::drive_until(Over over, Clock::time_point deadline) {
  Backoff backoff(patience());
  std::optional<Clock::time_point> next_look;
  while (!over()) {
    if (drive()) {
      backoff.reset();
      continue;
    }
    if (over() || backoff.pause()) continue;
    {
      Sleep sleep(memory_->block(memory_->rank()));
      if (drive() || over()) continue;
      if (!next_look) next_look = Clock::now() + kLongestSleep;
      sleep.until_rung(std::min(kLongestSleep, time_left(deadline)));
    }
    check_interrupt();
    // A peer that rings has brought something, as a rule. Looking around costs time for each peer: it waits until
    // nothing moves, or until it is due.
    if (drive() && Clock::now() < *next_look) {
      backoff.reset();
      continue;
    }
    look_around();
    next_look = Clock::now() + kLongestSleep;
  }
}

void Engine::wait_for(const Pending& operation) {
  waiting_threads_.fetch_add(1, std::memory_order_seq_cst);
  try {
    drive_until([&] { return operation.over(); }, operation.deadline());
  } catch (...) {  // interrupted: the operation goes on without this thread
    waiting_threads_.fetch_sub(1, std::memory_order_seq_cst);
    wake_progress_thread();
    throw;
  }
  if (waiting_threads_.fetch_sub(1, std::memory_order_seq_cst) == 1 && anything_pending()) wake_progress_thread();
}

void Engine::run_progress_thread() {
  RankBlock& mine = memory_->block(memory_->rank());
  memory_->enter();
  {
    const std::lock_guard lock(progress_mutex_);
    mine.standing.store(Standing::present, std::memory_order_seq_cst);
  }
  progress_wake_.notify_all();
  int dozes = 0;
  while (!stopping_) {
    dozes = doze(dozes);
    drive_until([&] { return stopping_ || !anything_pending() || somebody_waits(); }, Clock::time_point::max());
  }
  memory_->leave();
}

// Returns when it is time to look, with the number of looks since there was last something to do.
int Engine::doze(int dozes) {
  std::unique_lock lock(progress_mutex_);
  const auto wanted = [&] { return stopping_ || (progress_wanted_ && !somebody_waits()); };
  const bool active =
      progress_started_.exchange(false, std::memory_order_seq_cst) || (anything_pending() && !somebody_waits());
  dozes = active ? 0 : dozes + 1;
  if (dozes < kDozes) {
    progress_wake_.wait_for(lock, somebody_waits() ? kDozeBesideWaiter : kDoze, wanted);
  } else {
    progress_asleep_.store(true, std::memory_order_seq_cst);
    progress_wake_.wait(lock, [&] { return wanted() || progress_started_.load(std::memory_order_seq_cst); });
    progress_asleep_.store(false, std::memory_order_seq_cst);
    dozes = 0;
  }
  progress_wanted_ = false;
  return dozes;
}

void Engine::wake_progress_thread() {
  {
    const std::lock_guard lock(progress_mutex_);
    progress_wanted_ = true;
  }
  progress_wake_.notify_all();
}

bool Engine::anything_pending() const noexcept {
  for (const Lane& lane : lanes_) {
    if (!lane.idle()) return true;
  }
  return !mail_.empty();
}

void Engine::announce() noexcept { ring(memory_->block(memory_->rank())); }

void Engine::post(Task task) {
  const std::lock_guard lock(worker_mutex_);
  if (!worker_) worker_ = std::make_unique<ThreadExecutor>("hookline-work");
  worker_->post(std::move(task));
}

}  // namespace hookline::embedded
