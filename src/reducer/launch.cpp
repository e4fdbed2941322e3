// ReducerImpl: launching hooks and handling their completion.
#include <typeinfo>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "core/op_tag.hpp"
#include "group/abort_quietly.hpp"
#include "reducer/reducer_impl.hpp"
#include "reducer/sparse_rows.hpp"

namespace hookline::reducer {
namespace {

/// Returns the error with `context` prepended if its type is one of `Types`, else the error itself.
template <class... Types>
std::exception_ptr with_context(const std::exception_ptr& error, const std::string& context) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    std::exception_ptr extended = error;
    const auto extend = [&]<class E>(const E*) {
      if (typeid(e) == typeid(E)) {
        extended = std::make_exception_ptr(E(fmt::format("{}: {}", context, e.what()), e.ranks(), e.cause()));
      }
    };
    (extend(static_cast<const Types*>(nullptr)), ...);
    return extended;
  } catch (...) {
    return error;
  }
}

}  // namespace

std::string ReducerImpl::describe_bucket(std::size_t index) const {
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

void ReducerImpl::queue_full_buckets() {
  {
    const std::lock_guard lock(mutex_);
    if (launch_deferred_ || failure_) return;
    for (; next_bucket_ < buckets.size(); ++next_bucket_) {
      Bucket& bucket = buckets[next_bucket_];
      if (bucket.pending.load(std::memory_order_acquire) > 0) break;
      bucket.lane = hook::lane_of(lanes_, *hook, next_bucket_);
      scheduler_->enqueue({.owner = this,
                           .lane = bucket.lane,
                           .exclusive = !plain_allreduce_ || bucket.sparse,
                           .start = [self = shared_from_this(), index = next_bucket_, lane = bucket.lane] {
                             self->launch(index, lane);
                           }});
    }
  }
  scheduler_->launch();
}

// Called by the scheduler. After a failure the bucket may no longer exist.
void ReducerImpl::launch(std::size_t index, int lane) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      scheduler_->release(this, lane);
      return;
    }
    Bucket& bucket = buckets[index];
    bucket.launched = true;
    bucket.launched_at = Clock::now();
  }
  start_hook(buckets[index], index);
}

// Unused parameters are known in advance from the second step of a static graph on. Without static_graph and
// find_unused_parameters there are none.
HookStep ReducerImpl::hook_step() const {
  HookStep step;
  step.scale = scale_;
  step.unused_known = options.static_graph ? !learning_graph_ : !options.find_unused_parameters;
  if (!step.unused_known || !options.static_graph) return step;
  for (std::size_t p = 0; p < param_progress_.size(); ++p) {
    if (param_progress_[p].unused) step.unused.push_back(parameters[p].name);
  }
  return step;
}

void ReducerImpl::start_hook(Bucket& bucket, std::size_t index) {
  bucket.bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  const bool has_step_id = index == 0 && compared_step_id_;
  const std::uint64_t op_tag =
      has_step_id ? core::step_id_tag(step_, *compared_step_id_) : core::bucket_tag(step_, index);
  const ContextScope scope({.lane = bucket.lane, .op_tag = op_tag, .bytes_sent = bucket.bytes_sent});
  try {
    if (index == 0) hook->begin_step(hook_step());  // not earlier: a step that sent nothing can be discarded
    if (!bucket.sparse) {
      if (weight_ != 1) bucket.buffer *= weight_;
      bucket.grad_bucket.emplace(index, buckets.size(), bucket.buffer, bucket.layout);
    }
    if (plain_allreduce_ && !bucket.sparse) {
      WorkPtr work = plain_allreduce_->start(*bucket.grad_bucket, allreduce_op());
      {
        const std::lock_guard lock(mutex_);
        bucket.work = std::move(work);
      }
      done_cv_.notify_all();
      return;
    }
    Future<HookResult> future = bucket.sparse ? run_sparse(bucket, index) : hook->run_hook(*bucket.grad_bucket);
    // The captures keep hook, bucket and group alive until the hook completes, even if the reducer is destroyed.
    future.on_done([self = shared_from_this(), kept = hook, &bucket, index, future] {
      const std::exception_ptr error = future.error();
      self->on_hook_done(bucket, index, error, error ? std::nullopt : std::optional(future.value()));
    });
  } catch (...) {
    on_hook_done(bucket, index, std::current_exception(), {});
  }
}

void ReducerImpl::on_hook_done(Bucket& bucket, std::size_t index, const std::exception_ptr& error,
                               std::optional<HookResult> result) {
  if (error) fail(error, describe_bucket(index));
  {
    const std::lock_guard lock(mutex_);
    bucket.result = std::move(result);
    bucket.done_at = Clock::now();
    bucket.done = true;
    scheduler_->release(this, bucket.lane);
  }
  done_cv_.notify_all();
  scheduler_->launch();
}

void ReducerImpl::fail(const std::exception_ptr& error, const std::string& context) {
  const std::exception_ptr contextual_error = with_context<Timeout, Mismatch, PeerLost, Aborted>(error, context);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = contextual_error;
  }
  done_cv_.notify_all();
  if (hook::is_group_error(error)) return;
  const std::string cause = fmt::format("{} failed: {}", context, hookline::describe(error));
  group::abort_quietly(*group, cause);
  hook->on_step_failed(cause);
}

Future<HookResult> ReducerImpl::run_sparse(Bucket& bucket, std::size_t index) {
  const std::size_t parameter = bucket.members[0];
  const Tensor& tensor = parameters[parameter].tensor;
  Future<SparseGradient> row_union = union_rows(group, slots_[parameter].sparse_grads, tensor);
  const SparseGradient rows = co_await row_union;
  if (weight_ != 1) rows.values *= weight_;
  bucket.grad_bucket.emplace(sparse_bucket(index, buckets.size(), rows, tensor));
  if (rows.indices.numel() == 0) co_return bucket.grad_bucket->buffer();
  if (plain_allreduce_) {
    const WorkPtr work = plain_allreduce_->start(*bucket.grad_bucket, allreduce_op());
    co_await work;
    co_return bucket.grad_bucket->buffer();
  }
  HookResult result = co_await hook->run_hook(*bucket.grad_bucket);
  co_return result;
}

}  // namespace hookline::reducer
