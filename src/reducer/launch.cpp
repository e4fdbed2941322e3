// Starting hooks: in bucket order, each in its lane, outside the lock, by one thread at a time.
#include <algorithm>
#include <cstring>
#include <map>
#include <typeinfo>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "core/note.hpp"
#include "hook/hook_lane.hpp"
#include "reducer/by_allreduce.hpp"
#include "reducer/core.hpp"

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
        longer = std::make_exception_ptr(E(fmt::format("{}: {}", where, e.what()), e.cause()));
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

// Whoever makes a bucket full, completes a hook or finalizes comes here. One of them launches; what the others brought
// it finds when it looks again, under the same lock under which it would have stopped.
void Core::launch() {
  std::unique_lock lock(mutex_);
  if (launching_) return;
  launching_ = true;
  while (next_ < buckets.size() && !held_ && !failure_ && buckets[next_].missing.load(std::memory_order_acquire) == 0) {
    Bucket& bucket = buckets[next_];
    bucket.lane = hook::lane_of(*hook, next_, lanes_);
    if (busy_[static_cast<std::size_t>(bucket.lane)]) break;
    // Plain means of one lane may queue up in it; a hook has its lane to itself.
    const bool plain = plain_ && !bucket.sparse;
    busy_[static_cast<std::size_t>(bucket.lane)] = !plain;
    bucket.launched = true;
    bucket.launched_at = Clock::now();
    const std::size_t index = next_++;
    lock.unlock();
    run(bucket, index);
    lock.lock();
  }
  launching_ = false;
}

void Core::run(Bucket& bucket, std::size_t index) {
  bucket.sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  const ContextScope scope({.lane = bucket.lane, .note = core::bucket_note(step_, index), .sent = bucket.sent});
  try {
    if (!bucket.sparse) {
      if (factor_ != 1) bucket.memory *= factor_;
      bucket.view.emplace(index, buckets.size(), bucket.memory, bucket.layout);
    }
    if (plain_ && !bucket.sparse) {
      WorkPtr work = plain_->start(*bucket.view);
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
    busy_[static_cast<std::size_t>(bucket.lane)] = false;
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
  if (!hook::comes_from_the_group(error)) tell_others(fmt::format("{} failed: {}", where, hookline::describe(error)));
}

void Core::tell_others(const std::string& cause) {
  try {
    group->abort(cause);
  } catch (...) {  // such a group has no way to tell, and the cause matters more; its peers run into their timeouts
  }
}

// The ranks have different rows. They agree on the union of them, in which every rank has values, zero where it has no
// such row; what the hook then sees is a bucket like any other.
Future<HookResult> Core::run_sparse(Bucket& bucket, std::size_t index) {
  const std::size_t parameter = bucket.members[0];
  const Slot& slot = slots_[parameter];
  const Tensor& tensor = parameters[parameter].tensor;
  const auto ranks = static_cast<std::size_t>(group->size());

  std::map<std::int64_t, std::size_t> rows;  // to their place in the union
  for (const SparseGradient& part : slot.sparse) {
    for (std::int64_t i = 0; i < part.indices.numel(); ++i) rows[part.indices.data<const std::int64_t>()[i]] = 0;
  }
  const Tensor mine = Tensor::full({1}, static_cast<double>(rows.size()), DType::i64);
  const Tensor counts = Tensor::empty({static_cast<std::int64_t>(ranks)}, DType::i64);
  const WorkPtr counting = allgather_into_tensor(*group, counts, mine);
  co_await counting;
  std::int64_t most = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::int64_t count = counts.data<const std::int64_t>()[r];
    if (count < 0 || count > tensor.shape()[0]) throw Mismatch("a rank has more sparse rows than the parameter");
    most = std::max(most, count);
  }
  if (most > 0) {
    // Padded with -1, which is no row.
    const Tensor own = Tensor::full({most}, -1, DType::i64);
    std::size_t at = 0;
    for (const auto& [row, place] : rows) own.data<std::int64_t>()[at++] = row;
    const Tensor all = Tensor::empty({most * static_cast<std::int64_t>(ranks)}, DType::i64);
    const WorkPtr gathering = allgather_into_tensor(*group, all, own);
    co_await gathering;
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      const std::int64_t row = all.data<const std::int64_t>()[i];
      if (row < -1 || row >= tensor.shape()[0]) throw Mismatch("a rank has a sparse row that the parameter lacks");
      if (row >= 0) rows[row] = 0;
    }
  }
  const auto united = static_cast<std::int64_t>(rows.size());
  const Tensor indices = Tensor::empty({united}, DType::i64);
  std::size_t place = 0;
  for (auto& [row, where] : rows) {
    indices.data<std::int64_t>()[place] = row;
    where = place++;
  }
  Dims shape = tensor.shape();
  shape[0] = united;
  const Tensor values = group->empty(shape, tensor.dtype());
  values.fill(0);
  for (const SparseGradient& part : slot.sparse) {
    for (std::int64_t i = 0; i < part.indices.numel(); ++i) {
      const auto to = static_cast<std::int64_t>(rows[part.indices.data<const std::int64_t>()[i]]);
      const Tensor target = values.slice(0, to, to + 1);
      const Tensor sum = part.values.slice(0, i, i + 1);
      visit_dtype(tensor.dtype(), [&](auto element) {
        using T = decltype(element);
        T* out = target.template data<T>();
        const T* in = sum.template data<const T>();
        for (std::int64_t k = 0; k < sum.numel(); ++k) {
          if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
            out[k] = T(static_cast<float>(out[k]) + static_cast<float>(in[k]));
          } else {
            out[k] = static_cast<T>(out[k] + in[k]);
          }
        }
      });
    }
  }
  if (factor_ != 1) values *= factor_;
  std::vector<Dims> sizes(1, shape);
  std::vector<Tensor> tensors(1, tensor);
  auto layout = std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(tensors)));
  bucket.view.emplace(index, buckets.size(), values.flatten(), std::move(layout), indices);
  if (united == 0) co_return bucket.view->buffer();
  HookResult result = co_await hook->run_hook(*bucket.view);
  co_return result;
}

}  // namespace hookline::reducer
