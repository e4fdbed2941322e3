// The group that runs collectives after a signature check. Each lane has a thread, so lanes do not block each other.
#include <hookline/group/checked.hpp>

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

#include "backend/operation_kinds.hpp"
#include "backend/work_around.hpp"
#include "core/note.hpp"
#include "group/abort_quietly.hpp"
#include "group/agreement.hpp"
#include "group/checked_parts.hpp"
#include "group/mail_checks.hpp"

namespace hookline {
namespace {

using Outcome = Future<std::vector<Tensor>>;
using Parts = group::CheckedParts;
using backend::is_point_to_point;

/// Per-thread state for the InterruptScope of a lane thread: its group, and the time of the next poll for an abort.
struct Served {
  Parts* parts = nullptr;
  Clock::time_point next_look;
};
thread_local Served served;
void give_up_with_the_group() { served.parts->check_all(served.next_look); }

class CheckedWork final : public backend::WorkAround {
 public:
  CheckedWork(Outcome outcome, std::weak_ptr<ProcessGroup> group, OpType type, std::uint64_t sequence,
              std::shared_ptr<std::atomic<int>> source)
      : WorkAround(make_work(outcome, type, sequence)),
        outcome_(std::move(outcome)),
        group_(std::move(group)),
        source_(std::move(source)) {}

  void wait(std::optional<Milliseconds> timeout) override {
    const auto deadline = timeout ? deadline_after(*timeout) : Clock::time_point::max();
    if (!outcome_.wait_until(deadline)) {
      const std::string text =
          fmt::format("{} (number {}) did not complete within {} ms", name(op_type()), sequence_number(),
                      timeout->count());
      if (const auto group = group_.lock()) group::abort_quietly(*group, text);
      outcome_.wait_until(Clock::time_point::max());  // the tensors must not be touched after wait() returns
      throw Timeout(text);
    }
    outcome_.value();
  }
  int source_rank() const override { return source_ ? source_->load(std::memory_order_acquire) : -1; }

 private:
  const Outcome outcome_;
  const std::weak_ptr<ProcessGroup> group_;         // the checked group; works do not keep it alive
  const std::shared_ptr<std::atomic<int>> source_;  // set for point-to-point operations only
};

bool breaks_groups(const Error& e) {
  return dynamic_cast<const Timeout*>(&e) || dynamic_cast<const PeerLost*>(&e) || dynamic_cast<const Aborted*>(&e);
}

/// Runs one collective on a lane thread: compares signatures, then runs it on the inner group.
std::vector<Tensor> perform(Parts& parts, Store& store, Collective collective, const CallContext& context,
                            std::uint64_t number, Clock::time_point deadline) {
  served = {&parts, deadline_after(kInterruptPeriod)};
  const InterruptScope scope(&give_up_with_the_group);
  parts.check();
  const group::Meeting meeting{.store = store,
                               .rank = parts.group->rank(),
                               .size = parts.group->size(),
                               .key = fmt::format("checked/{}/{}", context.lane, number),
                               .what = fmt::format("number {} of lane {}", number, context.lane)};
  std::string text = group::common_part(collective);
  const std::uint64_t note = collective.note != 0 ? collective.note : context.note;
  if (note != 0) text += fmt::format(" ({})", core::describe_note(note));
  try {
    group::agree(meeting, text, deadline);
  } catch (const Timeout& e) {
    group::abort_quietly(*parts.group, e.what());
    parts.give_up(std::current_exception(), e.what());
    throw;
  }
  served.next_look = Clock::time_point::max();  // from here on the inner group detects peer failures
  collective.timeout = time_left(deadline);
  const ContextScope of_the_caller(context);
  try {
    const WorkPtr work = parts.group->run(std::move(collective));
    work->wait();
    return work->result();
  } catch (const Error& e) {
    if (breaks_groups(e)) parts.close(std::current_exception());
    throw;
  }
}

/// A lane's thread and its own store connection: a wait in the store must not block other lanes.
struct Lane {
  std::shared_ptr<group::OwnWay> store;
  std::unique_ptr<ThreadExecutor> executor;
  std::uint64_t count = 0;
};

class CheckedGroup final : public GroupDecorator {
 public:
  CheckedGroup(std::shared_ptr<ProcessGroup> group, std::shared_ptr<Store> store)
      : GroupDecorator(std::move(group)), parts_(std::make_shared<Parts>(inner(), std::move(store))) {
    if (!parts_->store) {
      throw InvalidArgument("with_collective_checks: store must not be null; pass a store that all ranks share");
    }
  }
  CheckedGroup(const CheckedGroup&) = delete;
  CheckedGroup& operator=(const CheckedGroup&) = delete;
  ~CheckedGroup() override {
    parts_->close();
    const std::lock_guard lock(mutex_);
    mail_.reset();
    for (auto& lane : lanes_) lane.executor.reset();
  }

  WorkPtr run(Collective collective) override {
    const std::uint64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
    WorkPtr work = size() == 1 ? inner()->run(std::move(collective)) : start(std::move(collective), sequence);
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
      parts_->give_up(std::make_exception_ptr(aborted), cause);
      throw;
    }
    parts_->give_up(std::make_exception_ptr(aborted), cause);
  }
  void shutdown() override {
    parts_->close();
    inner()->shutdown();
  }
  std::uint64_t sequence_number() const override { return sequence_.load(std::memory_order_relaxed); }

 protected:
  std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string& label) override {
    return checked(std::move(group), std::make_shared<PrefixStore>(label, parts_->store));
  }

 private:
  WorkPtr start(Collective collective, std::uint64_t sequence) {
    check_arguments(collective, rank(), size());
    const OpType type = collective.type;
    std::shared_ptr<std::atomic<int>> source;
    if (is_point_to_point(type)) source = std::make_shared<std::atomic<int>>(-1);
    auto outcome = post(std::move(collective), source);
    return std::make_shared<CheckedWork>(std::move(outcome), weak_from_this(), type, sequence, std::move(source));
  }

  Outcome post(Collective collective, const std::shared_ptr<std::atomic<int>>& source) {
    const auto deadline = deadline_after(collective.timeout.value_or(timeout()));
    const CallContext& context = current_context();
    const std::lock_guard lock(mutex_);
    if (is_point_to_point(collective.type)) {
      if (!mail_) mail_ = std::make_unique<group::MailChecks>(parts_);
      return mail_->post(std::move(collective), deadline, source);
    }
    Lane& lane = lanes_.at(static_cast<std::size_t>(context.lane));
    if (!lane.executor) {
      lane.executor = std::make_unique<ThreadExecutor>("hl-checked");
      lane.store = std::make_shared<group::OwnWay>(parts_->store);
    }
    Promise<std::vector<Tensor>> promise;
    auto outcome = promise.get_future();
    lane.executor->post([parts = parts_, store = lane.store, collective = std::move(collective),
                         promise = std::move(promise), deadline, context, number = ++lane.count]() mutable {
      promise.set_from([&] { return perform(*parts, **store, std::move(collective), context, number, deadline); });
    });
    return outcome;
  }

  const std::shared_ptr<Parts> parts_;
  std::atomic<std::uint64_t> sequence_ = 0;
  Coalescing coalescing_;
  std::mutex mutex_;
  std::unique_ptr<group::MailChecks> mail_;
  std::array<Lane, Capabilities::kMostLanes> lanes_;
};

}  // namespace

std::shared_ptr<ProcessGroup> checked(std::shared_ptr<ProcessGroup> group, std::shared_ptr<Store> store) {
  return std::make_shared<CheckedGroup>(std::move(group), std::move(store));
}

}  // namespace hookline
