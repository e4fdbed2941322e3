// Starting hooks: in bucket order, each in its lane, outside the lock, by one thread at a time.
#include <typeinfo>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "core/note.hpp"
#include "group/abort_quietly.hpp"
#include "reducer/core.hpp"
#include "reducer/sparse_rows.hpp"

namespace hookline::reducer {
namespace {

/// The same error with more words, where it is one of the group's; others are left as whoever raised them made them.
template <class... Types>
std::exception_ptr with_place(const std::exception_ptr& error, const std::string& where) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    std::exception_ptr longer = error;
    const auto lengthen = [&]<class E>(const E*) {
      if (typeid(e) == typeid(E)) {
        longer = std::make_exception_ptr(E(fmt::format("{}: {}", where, e.what()), e.ranks(), e.cause()));
      }
    };
    (lengthen(static_cast<const Types*>(nullptr)), ...);
    return longer;
  } catch (...) {
    return error;
  }
}

}  // namespace

std::string Core::describe(std::size_t index) const {
  constexpr std::size_t kShown = 3;
  const Bucket& bucket = buckets[index];
  std::vector<std::string_view> names;
  for (const std::size_t p : bucket.members) {
    if (names.size() < kShown) names.push_back(parameters[p].name);
  }
  return fmt::format("bucket {} of {} in step {} (hook {}; {}{})", index, buckets.size(), step_, hook->name(),
                     fmt::join(names, ", "),
                     bucket.members.size() > kShown ? fmt::format(" and {} more", bucket.members.size() - kShown) : "");
}

void Core::launch() {
  const auto take = [this]() -> std::optional<std::size_t> {
    if (next_ == buckets.size() || held_ || failure_) return std::nullopt;
    Bucket& bucket = buckets[next_];
    if (bucket.missing.load(std::memory_order_acquire) > 0) return std::nullopt;
    bucket.lane = launcher_.lane_of(*hook, next_);
    if (launcher_.busy(bucket.lane)) return std::nullopt;
    // Plain means of one lane may queue up in it; a hook has its lane to itself.
    launcher_.set_busy(bucket.lane, !plain_ || bucket.sparse);
    bucket.launched = true;
    bucket.launched_at = Clock::now();
    return next_++;
  };
  launcher_.launch(mutex_, take, [this](std::size_t index) { run(buckets[index], index); });
}

// Which parameters nobody uses is known beforehand where all are used, or the graph has been learnt.
HookStep Core::hook_step() const {
  HookStep step;
  step.scale = scale_;
  step.unused_known = options.static_graph ? !learning_graph_ : !options.find_unused_parameters;
  if (!step.unused_known || !options.static_graph) return step;
  for (std::size_t p = 0; p < marks_.size(); ++p) {
    if (marks_[p].unused) step.unused.push_back(parameters[p].name);
  }
  return step;
}

void Core::run(Bucket& bucket, std::size_t index) {
  bucket.sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  const bool numbered = index == 0 && compared_id_;
  const std::uint64_t note = numbered ? core::step_id_note(step_, *compared_id_) : core::bucket_note(step_, index);
  const ContextScope scope({.lane = bucket.lane, .note = note, .sent = bucket.sent});
  try {
    if (index == 0) hook->begin_step(hook_step());  // not before: a step of which nothing was sent can be dropped
    if (!bucket.sparse) {
      if (weight_ != 1) bucket.memory *= weight_;
      bucket.view.emplace(index, buckets.size(), bucket.memory, bucket.layout);
    }
    if (plain_ && !bucket.sparse) {
      WorkPtr work = plain_->start(*bucket.view, plain_op());
      {
        const std::lock_guard lock(mutex_);
        bucket.work = std::move(work);
      }
      done_.notify_all();
      return;
    }
    Future<HookResult> future = bucket.sparse ? run_sparse(bucket, index) : hook->run_hook(*bucket.view);
    // The hook, the bucket and the group live until then, whatever becomes of the reducer.
    future.on_done([self = shared_from_this(), kept = hook, &bucket, index, future] {
      const std::exception_ptr error = future.error();
      self->hook_done(bucket, index, error, error ? HookResult() : future.value());
    });
  } catch (...) {
    hook_done(bucket, index, std::current_exception(), {});
  }
}

void Core::hook_done(Bucket& bucket, std::size_t index, const std::exception_ptr& error, HookResult result) {
  if (error) fail(error, describe(index));
  {
    const std::lock_guard lock(mutex_);
    bucket.result = std::move(result);
    bucket.done_at = Clock::now();
    bucket.done = true;
    launcher_.set_busy(bucket.lane, false);
  }
  done_.notify_all();
  launch();
}

void Core::fail(const std::exception_ptr& error, const std::string& where) {
  const std::exception_ptr longer = with_place<Timeout, Mismatch, PeerLost, Aborted>(error, where);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = longer;
  }
  done_.notify_all();
  if (hook::comes_from_the_group(error)) return;
  const std::string cause = fmt::format("{} failed: {}", where, hookline::describe(error));
  group::abort_quietly(*group, cause);
  hook->give_up(cause);
}

Future<HookResult> Core::run_sparse(Bucket& bucket, std::size_t index) {
  const std::size_t parameter = bucket.members[0];
  const Tensor& tensor = parameters[parameter].tensor;
  Future<SparseGradient> uniting = unite_rows(group, slots_[parameter].sparse, tensor);
  const SparseGradient rows = co_await uniting;
  if (weight_ != 1) rows.values *= weight_;
  bucket.view.emplace(bucket_of_rows(index, buckets.size(), rows, tensor));
  if (rows.indices.numel() == 0) co_return bucket.view->buffer();
  if (plain_) {
    const WorkPtr work = plain_->start(*bucket.view, plain_op());
    co_await work;
    co_return bucket.view->buffer();
  }
  HookResult result = co_await hook->run_hook(*bucket.view);
  co_return result;
}

}  // namespace hookline::reducer
