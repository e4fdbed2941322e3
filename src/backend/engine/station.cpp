// Opens and closes the context, starts operations, and handles failures.
#include "backend/engine/station.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/engine/exchange.hpp"
#include "backend/monitored.hpp"
#include "backend/operation_kinds.hpp"
#include "core/fork.hpp"
#include "core/thread.hpp"

namespace hookline::engine {
namespace {

/// An operation started on an unusable group. It is complete from the start.
class Ended final : public Operation {
 public:
  using Operation::Operation;
  std::string describe() const override { return "operation on a failed group"; }

 private:
  void drive() override {}
  void hurry() override {}
};

}  // namespace

Station::Station(std::shared_ptr<Engine> engine)
    : engine_(std::move(engine)),
      rank_(engine_->rank()),
      size_(engine_->size()),
      name_(engine_->name()),
      fork_generation_(core::fork_generation()),
      waits_(size_, [this] { mail_.look_around(); }),
      mail_(*this),
      outbox_(*this),
      left_(static_cast<std::size_t>(size_)),
      lost_since_(static_cast<std::size_t>(size_)) {
  for (auto& lane : lanes_) lane = std::make_unique<Lane>(*this);
}

Station::~Station() { close(); }

void Station::open() {
  if (size_ == 1) return;
  ticking_ = core::start_thread("hookline-tick", [this, keep = shared_from_this()] { waits_.run(); });
  try {
    listening_ = core::start_thread("hookline-mail", [this, keep = shared_from_this()] { mail_.listen(); });
  } catch (...) {
    close();  // the watchdog thread holds a reference until it ends
    throw;
  }
}

void Station::close() noexcept {
  if (fork_generation_ != core::fork_generation()) {
    // The threads exist only in the parent, so their mutexes and condition variables cannot be destroyed: leak all.
    itself_ = weak_from_this().lock();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    unusable_.store(true, std::memory_order_seq_cst);
  }
  if (!broken()) {
    outbox_.farewell({.kind = MailKind::left}, "");
    outbox_.flush();
  }
  waits_.stop();
  for (const auto& lane : lanes_) lane->end_all();
  mail_.end_all();
  outbox_.end_all();
  for (const auto& lane : lanes_) lane->stop();
  mail_.incoming().stop();
  outbox_.stop();
  outbox_.await_farewells();
  outbox_.release();
  mail_.end_listening();
  waits_.end_thread();
  core::end_thread(listening_);
  core::end_thread(ticking_);
  engine_closed_ = true;
  engine_->close();
  std::unique_ptr<ThreadExecutor> worker;  // destroyed without the lock, since its last tasks may post others
  const std::lock_guard lock(worker_mutex_);
  worker.swap(worker_);
}

void Station::refuse_in_forked_child(std::string_view what) const {
  if (fork_generation_ == core::fork_generation()) return;
  throw InvalidArgument(
      fmt::format("{} on a {} group that was made before fork(). Make a new group in the child process.", what, name_));
}

WorkPtr Station::start(Collective&& collective, int lane_index, Milliseconds timeout) {
  refuse_in_forked_child(hookline::name(collective.type));
  if (const std::exception_ptr cause = why_unusable()) {
    auto ended = std::make_shared<Ended>(shared_from_this(), kLongestTimeout, std::move(collective));
    ended->complete(cause);
    return ended;
  }
  if (collective.type == OpType::send) return mail_.send(std::move(collective), timeout);
  if (backend::is_point_to_point(collective.type)) return mail_.receive(std::move(collective), timeout);
  Lane& lane = this->lane(lane_index);
  auto exchange = std::make_shared<Exchange>(shared_from_this(), timeout, lane_index, std::move(collective));
  std::uint64_t& number = numbers_[static_cast<std::size_t>(lane_index)];
  if (!lane.push(exchange, [&] { exchange->begin(++number); }, exchange->is_large())) {
    exchange->finish(why_unusable());
  }
  return exchange;
}

std::exception_ptr Station::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

std::exception_ptr Station::why_unusable() const {
  if (!unusable()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (broken_) return broken_;
  return std::make_exception_ptr(Aborted(fmt::format("the {} group was shut down on rank {}", name_, rank_), {rank_}));
}

void Station::fail(std::exception_ptr cause, const std::string* told) {
  if (fork_generation_ != core::fork_generation()) return;  // an abort would appear to come from the parent
  Envelope envelope{.kind = MailKind::gave_up};
  Cause said{.ranks = {rank_}, .text = told ? *told : describe(cause)};
  try {
    std::rethrow_exception(cause);
  } catch (const PeerLost& e) {
    envelope.dtype = kPeerLost;
    said.ranks = e.ranks();
  } catch (const Error& e) {
    if (told) said.ranks = e.ranks();
    else said.text = fmt::format("rank {} gave up: {}", rank_, said.text);
  } catch (...) {
    if (!told) said.text = fmt::format("rank {} gave up: {}", rank_, said.text);
  }
  {
    const std::lock_guard lock(mutex_);
    if (broken_ || closed_) return;
    broken_ = cause;
    broken_since_ = Clock::now();
    unusable_.store(true, std::memory_order_seq_cst);
  }
  news_.notify_all();
  const std::string bytes = encode(said, envelope);
  outbox_.farewell(envelope, bytes);
  waits_.stop(told != nullptr);
  for (const auto& lane : lanes_) {
    if (told) lane->hurry();
    else lane->end_all();
  }
  mail_.end_all();
  outbox_.end_all();
  waits_.keep_ticking();
}

// An abandoned message may keep a transport busy whose peer no longer receives it.
void Station::close_if_broken(Milliseconds since) noexcept {
  if (!unusable() || engine_closed_.load()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_ || closed_ || Clock::now() < broken_since_ + since) {
      if (broken_) waits_.keep_ticking();
      return;
    }
    if (engine_closed_.exchange(true)) return;
  }
  outbox_.release();
  engine_->close();
}

void Station::peer_left(int rank) {
  {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
  }
  news_.notify_all();
  waits_.set_gone(rank);
  engine_->left(rank);
  mail_.look_around();
}

// Blames, in this order: the cause that any rank has reported (error_, set by fail() in any thread); the peer itself,
// if it said goodbye (departed_, set by the listener thread); another departed rank whose message is missing; and, once
// all messages have been drained, the peer, which must have died.
std::exception_ptr Station::explain(const std::exception_ptr& lost, int rank, const std::string& what,
                                    const std::function<bool(int rank)>& lacks) {
  const auto left = [&](int who) {
    return std::make_exception_ptr(PeerLost(fmt::format("{}: rank {} left the group", context(what), who), {who}));
  };
  std::vector<bool> known(static_cast<std::size_t>(size_));  // to have left, and to have done their parts
  const auto next_left = [&] {
    for (int r = 0; r < size_; ++r) {
      if (has_left(r) && !known[static_cast<std::size_t>(r)]) return r;
    }
    return -1;
  };
  const Clock::time_point start = Clock::now();
  std::uint64_t looks = 0;
  enum class Phase : std::uint8_t { words, look, take } phase = Phase::words;
  Clock::time_point until = start + kExplain;
  std::unique_lock lock(mutex_);
  while (!closed_) {
    const bool news = news_.wait_until(lock, until, [&] {
      return broken_ || closed_ || next_left() >= 0 || (phase == Phase::look && mail_.looks() != looks);
    });
    if (broken_) return broken_;
    if (has_left(rank)) return left(rank);
    if (const int other = next_left(); other >= 0) {
      known[static_cast<std::size_t>(other)] = true;
      lock.unlock();
      if (lacks(other)) return left(other);
      lock.lock();
    } else if (phase == Phase::words) {
      phase = Phase::look;
      until = start + kExplainBusy;
      looks = mail_.looks();
      lock.unlock();
      mail_.look();
      lock.lock();
    } else if (phase == Phase::look && news) {
      phase = Phase::take;
      until = Clock::now() + kTake;
    } else {
      break;
    }
  }
  if (broken_) return broken_;
  return died(what, rank, lost);
}

std::exception_ptr Station::died(const std::string& what, int rank, const std::exception_ptr& lost) const {
  return std::make_exception_ptr(
      PeerLost(fmt::format("{}: rank {} died or cannot be reached. Make a new group without it.", context(what), rank),
               {rank}, lost));
}

// A leaving peer says goodbye before it closes its connections, but the disconnect may be seen first.
std::vector<int> Station::dead_ranks() {
  constexpr Milliseconds kForLastWords{200};
  try {
    if (const std::exception_ptr cause = broken()) std::rethrow_exception(cause);
  } catch (const PeerLost& e) {
    return e.ranks();
  } catch (...) {
    return {};
  }
  std::vector<int> dead;
  const std::lock_guard lock(lost_mutex_);
  for (int r = 0; r < size_ && !unusable(); ++r) {
    std::optional<Clock::time_point>& since = lost_since_[static_cast<std::size_t>(r)];
    if (r == rank_ || has_left(r)) continue;
    try {
      engine_->check(r);
      since.reset();
    } catch (const PeerLost&) {
      const Clock::time_point now = Clock::now();
      if (!since) since = now;
      if (now - *since >= kForLastWords) dead.push_back(r);
    }
  }
  return dead;
}

void Station::wake_explaining() {
  const std::lock_guard lock(mutex_);
  news_.notify_all();
}

std::string Station::context(const std::string& what) const {
  return fmt::format("{} on rank {} of the {} group", what, rank_, name_);
}

std::exception_ptr Station::not_in_time(const Operation& operation, const std::vector<int>& missing) const {
  const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - operation.time_started());
  const Collective& collective = operation.collective();
  if (collective.type == OpType::monitored_barrier) {
    return std::make_exception_ptr(
        Timeout(backend::failed_to_pass(rank_, missing, collective.wait_all_ranks, waited), missing));
  }
  return std::make_exception_ptr(
      Timeout(fmt::format("{}: rank {} did not come within {} ms", context(operation.describe()),
                          fmt::join(missing, ", "), waited.count()),
              missing));
}

void Station::post(Task task) {
  const std::lock_guard lock(worker_mutex_);
  if (!worker_) worker_ = std::make_unique<ThreadExecutor>("hookline-work");
  worker_->post(std::move(task));
}

}  // namespace hookline::engine
