// ReducerImpl: construction, opening steps, and marks.
#include "reducer/reducer_impl.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/reducer/broadcast_coalesced.hpp>

#include "core/op_tag.hpp"
#include "core/read_only.hpp"
#include "group/abort_quietly.hpp"
#include "kernel/copy.hpp"
#include "kernel/reduce.hpp"
#include "reducer/model_check.hpp"

namespace hookline::reducer {
namespace {

constexpr std::uint32_t kUnlimitedMarks = ~std::uint32_t{0};

void check_rows(const Parameter& p, const Tensor& indices) {
  const std::int64_t rows = p.tensor.shape()[0];
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    const std::int64_t row = indices.data<const std::int64_t>()[i];
    if (row < 0 || row >= rows) {
      throw InvalidArgument(
          fmt::format("sparse gradient of parameter '{}': row index out of range: expected 0 to {}, "
                      "got {}",
                      p.name, rows - 1, row));
    }
  }
}

}  // namespace

ReducerImpl::ReducerImpl(std::vector<Parameter> model_parameters, std::shared_ptr<ProcessGroup> process_group,
                         HookPtr comm_hook, ReducerOptions reducer_options)
    : parameters(std::move(model_parameters)),
      group(std::move(process_group)),
      options(std::move(reducer_options)),
      lanes_(group ? hook::lane_count(*group) : 1),
      scheduler_(group ? hook::BucketScheduler::of(*group) : nullptr) {
  if (!group) throw InvalidArgument("Reducer: process group must not be null");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (!index_by_name_.emplace(p.name, i).second) {
      throw InvalidArgument(fmt::format("Reducer: duplicate parameter name '{}'", p.name));
    }
    if (p.sparse && p.tensor.dim() == 0) {
      throw InvalidArgument(fmt::format("parameter '{}' has no rows, so its gradient cannot be sparse", p.name));
    }
    if (options.broadcast_parameters && !p.ignored && p.tensor.read_only()) {
      throw InvalidArgument(
          fmt::format("parameter '{}' is read-only, so rank 0's values cannot be broadcast to it. Make it writable, or "
                      "disable broadcast_parameters.",
                      p.name));
    }
    if (p.has_gradient()) trainable_.push_back(i);
  }
  if (trainable_.empty()) {
    throw InvalidArgument(
        "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient. "
        "There are no parameters, or all of them are ignored or frozen.");
  }
  slots_.resize(parameters.size());
  param_progress_ = std::vector<ParamProgress>(parameters.size());
  for (const std::size_t i : trainable_) param_progress_[i].dense = !parameters[i].sparse;
  // Uses streaming stores if gradients and buckets together exceed the caches, regardless of their individual sizes.
  // The threshold was measured with 32 MiB of cache and two ranks.
  std::size_t bytes = 0;
  for (const std::size_t i : trainable_) bytes += parameters[i].tensor.nbytes();
  if (bytes >= 2 * kernel::kStreamThresholdBytes) stores_ = kernel::StoreMode::streaming;
  learning_graph_ = options.static_graph;
  if (options.buckets) check_buckets_option();
  set_hook(std::move(comm_hook));
  stats.hook = hook->name();
}

void ReducerImpl::initialize(const std::vector<NamedTensor>& buffers) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} parameters", parameters.size()));
  lines.push_back(options.buckets ? fmt::format("buckets {}", *options.buckets)
                                  : fmt::format("bucket limits {} and {}", options.limits.first_bucket_bytes,
                                                options.limits.bucket_bytes));
  lines.push_back(fmt::format("find_unused_parameters {}", options.find_unused_parameters));
  lines.push_back(fmt::format("static_graph {}", options.static_graph));
  lines.push_back(fmt::format("reduction {}", options.reduction == GradientReduction::sum ? "sum" : "mean"));
  lines.push_back(fmt::format("broadcast_parameters {}", options.broadcast_parameters));
  std::vector<Tensor> tensors;
  for (const Parameter& p : parameters) {
    if (p.ignored) continue;
    lines.push_back(fmt::format("parameter '{}' {}{}{}{}{}", p.name, name(p.tensor.dtype()),
                                to_string(p.tensor.shape()), p.sparse ? " sparse" : "",
                                p.reduce_last ? " reduce_last" : "", p.frozen ? " frozen" : ""));
    tensors.push_back(p.tensor);
  }
  for (const NamedTensor& b : buffers) {
    lines.push_back(fmt::format("buffer '{}' {}{}", b.name, name(b.tensor.dtype()), to_string(b.tensor.shape())));
    tensors.push_back(b.tensor);
  }
  check_same_on_all_ranks(*group, lines);
  if (options.broadcast_parameters) broadcast_coalesced(*group, tensors);
  build_buckets(options.buckets ? *options.buckets : plan_for(reverse_order()));
}

std::vector<Tensor> ReducerImpl::trainable_tensors() const {
  std::vector<Tensor> tensors;
  tensors.reserve(trainable_.size());
  for (const std::size_t p : trainable_) tensors.push_back(parameters[p].tensor);
  return tensors;
}

std::size_t ReducerImpl::index_of(std::string_view name) const {
  const auto found = index_by_name_.find(name);
  if (found == index_by_name_.end()) {
    std::vector<std::string_view> known;
    known.reserve(parameters.size());
    for (const Parameter& p : parameters) known.push_back(p.name);
    throw InvalidArgument(
        fmt::format("no parameter is called '{}': expected one of {}: {}", name, known.size(), join_names(known)));
  }
  return found->second;
}

std::string ReducerImpl::join_names(const std::vector<std::string_view>& names) {
  constexpr std::ptrdiff_t kShown = 10;
  const bool all = std::ssize(names) <= kShown;
  return fmt::format("{}{}", fmt::join(names.begin(), all ? names.end() : names.begin() + kShown, ", "),
                     all ? "" : ", …");
}

void ReducerImpl::check_parameter(std::size_t parameter) const {
  if (parameter < param_progress_.size() && param_progress_[parameter].dense) return;
  if (parameter >= parameters.size()) {
    throw InvalidArgument(
        fmt::format("parameter index out of range: expected 0 to {}, got {}", parameters.size() - 1, parameter));
  }
  const Parameter& p = parameters[parameter];
  if (!p.has_gradient()) {
    throw InvalidArgument(fmt::format("parameter '{}' is {}, so it has no gradient. Pass only trainable parameters.",
                                      p.name, p.ignored ? "ignored" : "frozen"));
  }
}

void ReducerImpl::run_control_collective(const char* what, const std::function<void()>& collectives) {
  const int lane = lanes_ > 1 ? 1 : 0;
  Promise<void> promise;
  const Future<void> turn = promise.get_future();
  scheduler_->enqueue(
      {.owner = this, .lane = lane, .exclusive = true, .start = [promise = std::move(promise)]() mutable {
         promise.set_value();
       }});
  scheduler_->launch();
  std::exception_ptr error;
  try {
    const Milliseconds limit = stall_timeout();
    hook::StallTimer stall(*scheduler_, limit);
    while (!turn.wait_until(deadline_after(kInterruptPeriod))) {
      if (!stall.expired()) continue;
      const std::string cause = fmt::format(
          "not started: no hook of any model on the group has started or completed within {} ms", limit.count());
      group::abort_quietly(*group, fmt::format("{}: {}", what, cause));
      throw Timeout(cause);
    }
    const ContextScope scope({.lane = lane, .op_tag = core::step_tag(step_)});
    collectives();
  } catch (...) {
    error = std::current_exception();
  }
  // Releases the lane even if the wait for the turn failed, because the turn may still come.
  turn.on_done([self = shared_from_this(), lane] {
    self->scheduler_->release(self.get(), lane);
    self->scheduler_->launch();
  });
  if (!error) return;
  fail(error, fmt::format("{} on rank {} of {} in step {}", what, group->rank(), group->size(), step_));
  throw_if_failed();
}

void ReducerImpl::check_between_steps(const char* caller) const {
  if (step_open_) {
    throw InvalidArgument(
        fmt::format("{} is not allowed inside a step: step {} is in progress. Call it after finish() (in C++ "
                    "finalize()).",
                    caller, step_));
  }
}

std::exception_ptr ReducerImpl::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ReducerImpl::throw_if_failed() {
  if (const std::exception_ptr cause = failure()) std::rethrow_exception(cause);
}

// Returns false if no rank has inputs left, which happens only under join.
bool ReducerImpl::open_step(bool active) {
  if (step_open_.load(std::memory_order_acquire)) return true;
  const std::lock_guard lock(step_mutex_);
  if (step_open_.load(std::memory_order_relaxed)) return true;
  throw_if_failed();
  rebuild_if_pending();  // before step_ changes: under no_sync another rank may rebuild between steps
  ++step_;
  scale_ = weight_scale_;
  if (options.reduction == GradientReduction::sum && !plain_allreduce_) scale_ *= group->size();
  compared_step_id_ = step_id;
  if (join_) {
    // Ranks without inputs take over the step id of the others, whose ids are compared as in any step.
    const Tensor sums = Tensor::zeros({2}, DType::i64);
    auto* const counts = sums.data<std::int64_t>();
    if (active) counts[0] = 1;
    if (active && step_id) counts[1] = std::int64_t{*step_id} + 1;
    run_control_collective("join: counting ranks with inputs", [&] { group->allreduce(sums)->wait(); });
    const std::int64_t ranks = counts[0];
    if (ranks == 0) return false;
    if (!active) compared_step_id_.reset();
    if (!active && counts[1] > 0) compared_step_id_ = static_cast<std::uint32_t>(counts[1] / ranks - 1);
    if (options.reduction != GradientReduction::sum && !join_->divide_by_initial_world_size) {
      scale_ *= static_cast<double>(group->size()) / static_cast<double>(ranks);
    }
  }
  reduced_ = false;
  step_begin_ = Clock::now();
  {
    const std::lock_guard bucket_lock(mutex_);
    launch_deferred_ = learning_graph_;
  }
  step_open_.store(true, std::memory_order_release);
  if (options.static_graph && !learning_graph_) {
    for (const std::size_t p : trainable_) {
      if (param_progress_[p].expected_marks != 0) continue;
      if (param_progress_[p].dense && !param_progress_[p].stale_grad) zero_unused(p);
      count_ready(p);
    }
  }
  return true;
}

/// Counts a mark. Returns false under no_sync, where gradients are only accumulated.
bool ReducerImpl::begin_mark(std::size_t parameter) {
  if (no_sync) {
    const std::lock_guard lock(step_mutex_);
    reduced_ = false;
    rebuild_if_pending();
    return false;
  }
  if (!step_open_.load(std::memory_order_acquire)) open_step(true);
  ParamProgress& progress = param_progress_[parameter];
  const std::uint32_t expected_marks = learning_graph_ ? kUnlimitedMarks : progress.expected_marks;
  if (progress.marks.fetch_add(1, std::memory_order_relaxed) >= expected_marks) {
    progress.marks.fetch_sub(1, std::memory_order_relaxed);
    throw InvalidArgument(fmt::format(
        "Expected to mark a variable ready only once. Parameter '{}' was marked as ready {} in step {}. Was finish() "
        "(in C++ finalize()) of that step forgotten? If a gradient arrives in several parts, as for a layer inside "
        "several checkpoints with use_reentrant=True, sum them before marking, or set static_graph if each mark passes "
        "the sum so far.",
        parameters[parameter].name, expected_marks == 1 ? "twice" : fmt::format("more than {} times", expected_marks),
        step_));
  }
  return true;
}

void ReducerImpl::finish_mark(std::size_t parameter, bool counts) {
  if (!counts) {
    param_progress_[parameter].accumulated = true;
    return;
  }
  if (recording_order_) slots_[parameter].arrival_order = num_arrivals_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (learning_graph_) return;
  ParamProgress& progress = param_progress_[parameter];
  if (progress.expected_marks > 1 &&
      progress.copied.fetch_add(1, std::memory_order_acq_rel) + 1 < progress.expected_marks)
    return;
  count_ready(parameter);
}

void ReducerImpl::count_ready(std::size_t parameter) {
  Bucket& bucket = buckets[param_progress_[parameter].bucket];
  if (bucket.pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  bucket.ready_at = Clock::now();
  queue_full_buckets();
}

void ReducerImpl::mark_ready(std::size_t parameter) {
  if (parameter >= param_progress_.size() || !param_progress_[parameter].dense) {
    check_parameter(parameter);
    throw InvalidArgument(
        fmt::format("parameter '{}' has sparse gradients: expected mark_ready with a SparseGradient, got none",
                    parameters[parameter].name));
  }
  finish_mark(parameter, begin_mark(parameter));
}

void ReducerImpl::check_gradient(std::size_t parameter, const Tensor& gradient) const {
  check_parameter(parameter);
  const Parameter& p = parameters[parameter];
  if (p.sparse || gradient.dtype() != p.tensor.dtype() || gradient.shape() != p.tensor.shape() ||
      gradient.read_only()) {
    throw InvalidArgument(fmt::format(
        "gradient of parameter '{}': expected a writable {}{}{}, got {}{}{}", p.name,
        p.sparse ? "SparseGradient of " : "", name(p.tensor.dtype()), to_string(p.tensor.shape()), to_string(gradient),
        gradient.read_only() ? "; " : "", gradient.read_only() ? core::kPassWritableCopy : ""));
  }
}

// If a static graph marks a parameter repeatedly, each mark passes the sum so far. Accumulating these sums under
// no_sync would count the earlier parts twice.
void ReducerImpl::check_accumulation(std::size_t parameter, const Tensor& gradient) const {
  const ParamProgress& progress = param_progress_[parameter];
  const bool repeated = no_sync ? progress.expected_marks > 1
                                : progress.accumulated && progress.marks.load(std::memory_order_relaxed) > 0;
  if (!options.static_graph || !repeated || gradient.bytes() == slots_[parameter].data) return;
  throw Unsupported(fmt::format(
      "parameter '{}' is marked repeatedly in a static graph, which cannot be accumulated under no_sync. Write its "
      "gradient into gradient('{}'), or sum the gradients of the passes and mark the sum once.",
      parameters[parameter].name, parameters[parameter].name));
}

void ReducerImpl::mark_ready(std::size_t parameter, const Tensor& gradient) {
  check_gradient(parameter, gradient);
  check_accumulation(parameter, gradient);
  const bool counts = begin_mark(parameter);
  copy_into_bucket(parameter, gradient);
  finish_mark(parameter, counts);
}

void ReducerImpl::check_gradient(std::size_t parameter, const SparseGradient& gradient) const {
  check_parameter(parameter);
  const Parameter& p = parameters[parameter];
  Dims rows = p.tensor.shape();
  if (!rows.empty() && gradient.indices.dim() == 1) rows[0] = gradient.indices.numel();
  if (!p.sparse || gradient.indices.dtype() != DType::i64 || gradient.indices.dim() != 1 ||
      gradient.values.dtype() != p.tensor.dtype() || gradient.values.shape() != rows) {
    throw InvalidArgument(fmt::format(
        "sparse gradient of parameter '{}': expected indices int64[n] and values {}[n, …] with rows of {}, got {} and "
        "{}{}",
        p.name, name(p.tensor.dtype()), to_string(p.tensor.shape()), to_string(gradient.indices),
        to_string(gradient.values), p.sparse ? "" : ". This parameter is not declared sparse"));
  }
  check_rows(p, gradient.indices.contiguous());
}

void ReducerImpl::mark_ready(std::size_t parameter, const SparseGradient& gradient) {
  check_gradient(parameter, gradient);
  // Rejects a second mark before it stores any rows: the hook may be reading the rows of the first.
  const bool counts = begin_mark(parameter);
  store_rows(parameter, gradient);
  finish_mark(parameter, counts);
}

void ReducerImpl::store_rows(std::size_t parameter, const SparseGradient& gradient) {
  param_progress_[parameter].needs_reset = true;
  // The caller keeps a gradient unchanged only until finalize(), so no_sync needs a copy.
  const auto kept = [&](const Tensor& t) { return no_sync ? t.clone() : t.contiguous(); };
  slots_[parameter].sparse_grads.push_back({kept(gradient.indices), kept(gradient.values)});
}

// Returns false if the parameter was already marked, or its bucket may be in flight. Rebuilds buckets if pending, so
// that the location of the gradient is final.
bool ReducerImpl::begin_mark_unused(std::size_t parameter) {
  if (!options.find_unused_parameters && !options.static_graph) {
    throw InvalidArgument(fmt::format("mark_unused of parameter '{}' requires find_unused_parameters or static_graph",
                                      parameters[parameter].name));
  }
  const std::lock_guard lock(step_mutex_);
  if (!step_open_.load(std::memory_order_relaxed)) rebuild_if_pending();
  else if (options.static_graph && !learning_graph_) return false;  // its bucket may be in flight
  ParamProgress& progress = param_progress_[parameter];
  if (progress.marks.load(std::memory_order_acquire) > 0 || std::exchange(progress.stale_grad, true)) return false;
  progress.needs_reset = true;
  return true;
}

void ReducerImpl::mark_unused(std::size_t parameter, const Tensor& gradient) {
  check_gradient(parameter, gradient);
  if (!begin_mark_unused(parameter)) return;
  GradSlot& slot = slots_[parameter];
  if (slot.view_exposed) slot.saved_grad = slot.view.clone();
  copy_into_bucket(parameter, gradient);
}

void ReducerImpl::mark_unused(std::size_t parameter, const SparseGradient& gradient) {
  check_gradient(parameter, gradient);
  if (!begin_mark_unused(parameter)) return;
  store_rows(parameter, gradient);
}

void ReducerImpl::copy_into_bucket(std::size_t parameter, const Tensor& gradient) {
  GradSlot& slot = slots_[parameter];
  ParamProgress& progress = param_progress_[parameter];
  const bool contiguous = gradient.is_contiguous();
  if (contiguous && gradient.bytes() == slot.data) return;  // the view itself
  const auto count = static_cast<std::size_t>(gradient.numel());
  if (progress.accumulated) kernel::add(gradient.dtype(), slot.data, gradient.contiguous().bytes(), count);
  else if (contiguous) kernel::copy(slot.data, gradient.bytes(), gradient.nbytes(), stores_);
  else slot.view.copy_from(gradient);
  if (no_sync) return;
  progress.needs_reset = true;
  buckets[progress.bucket].needs_writeback.store(true, std::memory_order_relaxed);
  slot.writeback_ptr = contiguous ? gradient.mutable_bytes() : nullptr;
  slot.writeback_owner = gradient.owner();
  if (!contiguous) slot.writeback_view = gradient;
}

Tensor ReducerImpl::gradient(std::size_t parameter) {
  check_parameter(parameter);
  if (!param_progress_[parameter].dense) {
    throw InvalidArgument(
        fmt::format("parameter '{}' has sparse gradients; use sparse_gradient()", parameters[parameter].name));
  }
  views_exposed_ = true;
  slots_[parameter].view_exposed = true;
  return slots_[parameter].view;
}

void ReducerImpl::copy_gradient(std::size_t parameter, const Tensor& destination) const {
  check_gradient(parameter, destination);
  destination.copy_from(slots_[parameter].view);
}

SparseGradient ReducerImpl::sparse_gradient(std::size_t parameter) const {
  check_parameter(parameter);
  const auto& reduced = slots_[parameter].reduced_sparse_grad;
  if (!reduced) {
    throw InvalidArgument(fmt::format("parameter '{}' has no reduced sparse gradient; call this after finalize()",
                                      parameters[parameter].name));
  }
  return *reduced;
}

void ReducerImpl::set_hook(HookPtr replacement) {
  check_between_steps("replacing the hook");
  HookPtr next = replacement ? std::move(replacement) : std::make_shared<AllreduceHook>(group);
  auto plain_allreduce = std::dynamic_pointer_cast<AllreduceHook>(next);
  if (options.reduction == GradientReduction::sum && !plain_allreduce) {
    require_floating_gradients(fmt::format(
        "the hook {} rounds integer means, so they cannot be scaled to sums. Use the hook allreduce", next->name()));
  }
  hook = std::move(next);
  plain_allreduce_ = std::move(plain_allreduce);
}

}  // namespace hookline::reducer
