// ReducerImpl: bucket memory, and the rebuild after the first step.
#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "reducer/fallback_collectives.hpp"
#include "reducer/reducer_impl.hpp"

namespace hookline::reducer {
namespace {

constexpr std::size_t kBucketAlignment = 64;

}  // namespace

std::vector<ParameterIndices> ReducerImpl::current_plan() const {
  std::vector<ParameterIndices> all;
  all.reserve(buckets.size());
  for (const Bucket& bucket : buckets) all.push_back(bucket.members);
  return all;
}

// `order` has indices into the trainable parameters.
std::vector<ParameterIndices> ReducerImpl::plan_for(const std::vector<std::size_t>& order) const {
  std::vector<PlannedParameter> planned;
  planned.reserve(trainable_.size());
  for (const std::size_t i : trainable_) {
    const Parameter& p = parameters[i];
    planned.push_back(
        {.bytes = p.tensor.nbytes(), .dtype = p.tensor.dtype(), .own_bucket = p.sparse, .reduce_last = p.reduce_last});
  }
  std::vector<ParameterIndices> all = plan_buckets(planned, order, options.limits);
  for (ParameterIndices& members : all) {
    for (std::size_t& member : members) member = trainable_[member];
  }
  return all;
}

// Validates ReducerOptions::buckets: each parameter in exactly one bucket, one dtype per bucket.
void ReducerImpl::check_buckets_option() const {
  std::vector<bool> seen(parameters.size());
  for (std::size_t b = 0; b < options.buckets->size(); ++b) {
    const ParameterIndices& members = (*options.buckets)[b];
    if (members.empty()) throw InvalidArgument(fmt::format("option buckets: bucket {} has no parameters", b));
    for (const std::size_t p : members) {
      if (p >= parameters.size()) {
        throw InvalidArgument(
            fmt::format("option buckets: bucket {}: parameter index out of range: expected 0 to {}, got {}", b,
                        parameters.size() - 1, p));
      }
      const Parameter& parameter = parameters[p];
      if (!parameter.has_gradient()) {
        throw InvalidArgument(fmt::format("option buckets: bucket {} has '{}', which is {}", b, parameter.name,
                                          parameter.ignored ? "ignored" : "frozen"));
      }
      if (seen[p]) {
        throw InvalidArgument(fmt::format("option buckets: '{}' appears twice, again in bucket {}", parameter.name, b));
      }
      seen[p] = true;
      if (parameter.sparse && members.size() > 1) {
        throw InvalidArgument(fmt::format(
            "option buckets: bucket {} has '{}', which is sparse and needs its own bucket", b, parameter.name));
      }
      const Parameter& first = parameters[members[0]];
      if (parameter.tensor.dtype() != first.tensor.dtype()) {
        throw InvalidArgument(fmt::format("option buckets: bucket {} mixes dtypes: '{}' of {} and '{}' of {}", b,
                                          first.name, name(first.tensor.dtype()), parameter.name,
                                          name(parameter.tensor.dtype())));
      }
    }
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!seen[p] && parameters[p].has_gradient()) {
      throw InvalidArgument(fmt::format("option buckets: '{}' is in none of the {} buckets", parameters[p].name,
                                        options.buckets->size()));
    }
  }
}

// Allocates once, enough for any bucket order, so a rebuild needs no second copy even while old views are alive.
void ReducerImpl::allocate_buckets() {
  std::size_t bytes = 0;
  for (const std::size_t p : trainable_) {
    if (param_progress_[p].dense) bytes += parameters[p].tensor.nbytes() + kBucketAlignment;
  }
  bucket_memory_ = std::make_shared<Tensor>(group->empty({static_cast<std::int64_t>(bytes)}, DType::u8));
}

void ReducerImpl::build_buckets(const std::vector<ParameterIndices>& plan) {
  if (!bucket_memory_) allocate_buckets();
  bucket_memory_->fill(0);
  std::byte* next = bucket_memory_->mutable_bytes();
  buckets.clear();
  for (GradSlot& slot : slots_) slot.view = {};
  for (const ParameterIndices& members : plan) {
    Bucket& bucket = buckets.emplace_back();
    bucket.sparse = parameters[members[0]].sparse;
    std::vector<Dims> sizes;
    std::vector<Tensor> tensors;
    std::vector<std::string> names;
    for (const std::size_t p : members) {
      sizes.push_back(parameters[p].tensor.shape());
      tensors.push_back(parameters[p].tensor);
      names.push_back(parameters[p].name);
    }
    const DType dtype = tensors[0].dtype();
    bucket.layout =
        std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(tensors), std::move(names)));
    for (const std::size_t p : members) param_progress_[p].bucket = static_cast<std::uint32_t>(buckets.size() - 1);
    if (!bucket.sparse) {
      const auto elements = static_cast<std::int64_t>(bucket.layout->offsets.back() + bucket.layout->lengths.back());
      bucket.buffer = Tensor::wrap(next, {elements}, dtype, {.owner = bucket_memory_});
      next += (bucket.buffer.nbytes() + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
      const std::vector<Tensor> views = GradBucket(0, 1, bucket.buffer, bucket.layout).gradients();
      for (std::size_t i = 0; i < members.size(); ++i) {
        slots_[members[i]].view = views[i];
        slots_[members[i]].data = views[i].mutable_bytes();
      }
    }
    bucket.members = members;
    bucket.pending = members.size();
  }
}

// Returns the usual order of a backward pass.
std::vector<std::size_t> ReducerImpl::reverse_order() const {
  std::vector<std::size_t> order(trainable_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

// Returns rank 0's arrival order. plan_buckets validates it, as it comes from a peer.
std::vector<std::size_t> ReducerImpl::broadcast_order() {
  std::vector<std::size_t> order = reverse_order();
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    // Parameters that never arrived (0) wrap around to the end.
    return slots_[trainable_[a]].arrival_order - 1 < slots_[trainable_[b]].arrival_order - 1;
  });
  const std::vector<std::int64_t> own(order.begin(), order.end());
  // The tensor owns its memory: Ctrl-C ends the wait, not the broadcast that writes to it.
  const Tensor numbers = Tensor::borrow(own).clone();
  broadcast(*group, numbers)->wait();
  std::copy_n(numbers.data<const std::int64_t>(), order.size(), order.begin());
  return order;
}

void ReducerImpl::rebuild_if_pending() {
  if (!std::exchange(rebuild_pending_, false)) return;
  const std::vector<ParameterIndices> now = current_plan();
  std::vector<ParameterIndices> next = now;
  run_control_collective("rebuild: broadcasting the bucket order", [&] {
    const Tensor views_exposed = Tensor::full({1}, views_exposed_ ? 1 : 0, DType::i64);
    group->allreduce(views_exposed, {.op = ReduceOp::max})->wait();
    if (views_exposed.item<std::int64_t>() == 0) next = plan_for(broadcast_order());
  });
  if (next == now) return;
  {
    const std::lock_guard lock(mutex_);
    build_buckets(next);
  }
  rebuilt_ = true;
}

}  // namespace hookline::reducer
