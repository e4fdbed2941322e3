// Converts PyTorch's buckets for Hookline's hooks, and the results into torch futures.
#include "adapter/libtorch/comm_hook.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/view_as_complex.h>

#include "adapter/callback_pool.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/live_objects.hpp"
#include "adapter/libtorch/tensors.hpp"

namespace hookline::libtorch {
namespace {

constexpr const char* kHookName = "communication hook";

/// Returns the bucket's own tensor if the hook worked in place. Converts pairs of reals back to complex elements.
at::Tensor to_torch_result(const Tensor& reduced, const at::Tensor& buffer) {
  if (reduced.bytes() == static_cast<const std::byte*>(buffer.const_data_ptr())) return buffer;
  const at::Tensor result = tensor_of(reduced);
  return buffer.is_complex() && !result.is_complex() ? at::view_as_complex(result.view({-1, 2})) : result;
}

SparseGradient to_sparse_gradient(const at::Tensor& gradient) {
  if (gradient.sparse_dim() != 1) {
    throw Unsupported(
        "communication hook: unsupported sparse gradient: expected 1 sparse dimension, as of an "
        "embedding, got " +
        std::to_string(gradient.sparse_dim()));
  }
  const at::Tensor coalesced = gradient.coalesce();
  return {view_of(coalesced.indices()[0].contiguous(), kHookName, TensorUse::copy, true),
          view_of(coalesced.values().contiguous(), kHookName, TensorUse::reduce, true)};
}

at::Tensor to_sparse_tensor(const SparseGradient& rows, const std::vector<std::int64_t>& sizes) {
  at::Tensor made =
      at::sparse_coo_tensor(tensor_of(rows.indices).unsqueeze(0), tensor_of(rows.values.contiguous()), sizes);
  return made._coalesced_(true);  // rows are unique and ascending
}

}  // namespace

std::shared_ptr<BucketHook> BucketHook::make(std::shared_ptr<ProcessGroup> group, HookPtr hook,
                                             const std::vector<at::Tensor>& parameters,
                                             const std::vector<std::string>& names) {
  auto made = std::make_shared<BucketHook>(std::move(group), std::move(hook), parameters, names);
  LiveObjects<BucketHook>::instance().add(made);
  return made;
}

void close_bucket_hooks() {
  for (const auto& hook : LiveObjects<BucketHook>::instance().snapshot()) hook->close();
}

std::shared_ptr<adapter::DdpBucketScheduler> BucketHook::scheduler() const {
  const std::lock_guard lock(mutex_);
  if (!scheduler_) throw Aborted("communication hook: Python is finalizing");
  return scheduler_;
}

void BucketHook::close() {
  std::shared_ptr<adapter::DdpBucketScheduler> dropped;
  const std::lock_guard lock(mutex_);
  std::swap(dropped, scheduler_);
}

BucketHook::BucketHook(std::shared_ptr<ProcessGroup> group, HookPtr hook, const std::vector<at::Tensor>& parameters,
                       const std::vector<std::string>& names)
    : scheduler_(std::make_shared<adapter::DdpBucketScheduler>(std::move(group), std::move(hook))) {
  for (std::size_t i = 0; i < std::min(parameters.size(), names.size()); ++i) {
    parameter_names_[parameters[i].unsafeGetTensorImpl()] = names[i];
  }
}

// Returns the same object as long as the bucket's parameters do not change: hooks keep state for each layout.
std::shared_ptr<const BucketLayout> BucketHook::layout_of_bucket(const c10d::GradBucket& bucket) {
  const std::vector<at::Tensor> parameters = bucket.getParameters();
  std::vector<const at::TensorImpl*> members;
  members.reserve(parameters.size());
  for (const at::Tensor& p : parameters) members.push_back(p.unsafeGetTensorImpl());
  CachedLayout& cached = layouts_[bucket.getIndex()];
  if (cached.layout && cached.parameters == members) return cached.layout;

  std::vector<Dims> sizes;
  std::vector<Tensor> tensors;
  std::vector<std::string> names;
  for (const at::Tensor& p : parameters) {
    sizes.emplace_back(std::span(p.sizes().data(), p.sizes().size()));
    if (p.is_complex()) sizes.back().push_back(2);
    tensors.push_back(view_of(p, kHookName, TensorUse::copy, true));
    // An unnamed parameter is numbered in order of first use, which is the same on all ranks.
    const auto entry =
        parameter_names_.try_emplace(p.unsafeGetTensorImpl(), "parameter " + std::to_string(parameter_names_.size()));
    names.push_back(entry.first->second);
  }
  cached = {std::move(members),
            std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(tensors), std::move(names)))};
  return cached.layout;
}

c10::intrusive_ptr<c10::ivalue::Future> BucketHook::run(c10d::GradBucket& bucket, bool callbacks_may_block) {
  return with_torch_errors([&] {
    const at::Tensor buffer = bucket.getBuffer();
    const std::size_t index = bucket.getIndex();
    std::shared_ptr<const BucketLayout> layout;
    std::size_t count = 0;
    {
      const std::lock_guard lock(mutex_);
      layout = layout_of_bucket(bucket);
      if (bucket.isLast()) bucket_count_ = index + 1;
      count = bucket.isLast() ? index + 1 : std::max(bucket_count_, index + 2);
    }
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    const auto complete = [future, callbacks_may_block](const at::Tensor& value, const std::exception_ptr& error) {
      const auto complete_now = [future, value, error] {
        if (error) {
          future->setError(to_torch_error(error));
        } else {
          future->markCompleted(c10::IValue(value));
        }
      };
      if (callbacks_may_block) {
        adapter::CallbackPool::instance().post(complete_now);
      } else {
        complete_now();
      }
    };
    if (buffer.is_sparse()) {
      scheduler()->run_sparse(
          index, count, to_sparse_gradient(buffer), layout->parameters.at(0),
          [complete, sizes = buffer.sizes().vec()](const SparseGradient& rows, const std::exception_ptr& error) {
            complete(error ? at::Tensor() : to_sparse_tensor(rows, sizes), error);
          });
    } else {
      GradBucket hookline_bucket(index, count, view_of(buffer, kHookName, TensorUse::reduce, true).flatten(),
                                 std::move(layout));
      scheduler()->run(std::move(hookline_bucket),
                       [complete, buffer](const Tensor& reduced, const std::exception_ptr& error) {
                         complete(error ? at::Tensor() : to_torch_result(reduced, buffer), error);
                       });
    }
    return future;
  });
}

c10::intrusive_ptr<c10::ivalue::Future> TorchCommHook::runHook(c10d::GradBucket& bucket) {
  return hook_->run(bucket, false);
}

at::Tensor TorchCommHook::parseHookResult(const c10::IValue& result) { return result.toTensor(); }

}  // namespace hookline::libtorch
