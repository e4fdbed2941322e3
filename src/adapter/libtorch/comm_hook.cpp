// Converts PyTorch's buckets for Hookline's hooks, and the results into torch futures.
#include "adapter/libtorch/comm_hook.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/view_as_complex.h>

#include "adapter/callback_pool.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/living.hpp"
#include "adapter/libtorch/tensors.hpp"

namespace hookline::libtorch {
namespace {

constexpr const char* kOperation = "communication hook";

/// Returns the bucket's own tensor if the hook worked in place. Converts pairs of reals back to complex elements.
at::Tensor result_of(const Tensor& reduced, const at::Tensor& buffer) {
  if (reduced.bytes() == static_cast<const std::byte*>(buffer.const_data_ptr())) return buffer;
  const at::Tensor result = tensor_of(reduced);
  return buffer.is_complex() && !result.is_complex() ? at::view_as_complex(result.view({-1, 2})) : result;
}

SparseGradient rows_of(const at::Tensor& gradient) {
  if (gradient.sparse_dim() != 1) {
    throw Unsupported("communication hook: unsupported sparse gradient: expected 1 sparse dimension, as of an "
                      "embedding, got " +
                      std::to_string(gradient.sparse_dim()));
  }
  const at::Tensor own = gradient.coalesce();
  return {view_of(own.indices()[0].contiguous(), kOperation, Use::moved, true),
          view_of(own.values().contiguous(), kOperation, Use::reduced, true)};
}

at::Tensor sparse_of(const SparseGradient& rows, const std::vector<std::int64_t>& sizes) {
  at::Tensor made =
      at::sparse_coo_tensor(tensor_of(rows.indices).unsqueeze(0), tensor_of(rows.values.contiguous()), sizes);
  return made._coalesced_(true);  // rows are unique and ascending
}

}  // namespace

std::shared_ptr<BucketHook> BucketHook::make(std::shared_ptr<ProcessGroup> group, HookPtr hook,
                                             const std::vector<at::Tensor>& parameters,
                                             const std::vector<std::string>& names) {
  auto made = std::make_shared<BucketHook>(std::move(group), std::move(hook), parameters, names);
  Living<BucketHook>::all().add(made);
  return made;
}

void close_bucket_hooks() {
  for (const auto& hook : Living<BucketHook>::all().left()) hook->close();
}

std::shared_ptr<adapter::HookLanes> BucketHook::lanes() const {
  const std::lock_guard lock(mutex_);
  if (!lanes_) throw Aborted("communication hook: Python is finalizing");
  return lanes_;
}

void BucketHook::close() {
  std::shared_ptr<adapter::HookLanes> dropped;
  const std::lock_guard lock(mutex_);
  std::swap(dropped, lanes_);
}

BucketHook::BucketHook(std::shared_ptr<ProcessGroup> group, HookPtr hook, const std::vector<at::Tensor>& parameters,
                       const std::vector<std::string>& names)
    : lanes_(std::make_shared<adapter::HookLanes>(std::move(group), std::move(hook))) {
  for (std::size_t i = 0; i < std::min(parameters.size(), names.size()); ++i) {
    names_[parameters[i].unsafeGetTensorImpl()] = names[i];
  }
}

// Returns the same object as long as the bucket's parameters do not change: hooks keep state for each layout.
std::shared_ptr<const BucketLayout> BucketHook::layout_of_bucket(const c10d::GradBucket& bucket) {
  const std::vector<at::Tensor> parameters = bucket.getParameters();
  std::vector<const at::TensorImpl*> members;
  members.reserve(parameters.size());
  for (const at::Tensor& p : parameters) members.push_back(p.unsafeGetTensorImpl());
  Known& known = known_[bucket.getIndex()];
  if (known.layout && known.parameters == members) return known.layout;

  std::vector<Dims> sizes;
  std::vector<Tensor> tensors;
  std::vector<std::string> names;
  for (const at::Tensor& p : parameters) {
    sizes.emplace_back(std::span(p.sizes().data(), p.sizes().size()));
    if (p.is_complex()) sizes.back().push_back(2);
    tensors.push_back(view_of(p, kOperation, Use::moved, true));
    // An unnamed parameter is numbered in order of first use, which is the same on all ranks.
    const auto place = names_.try_emplace(p.unsafeGetTensorImpl(), "parameter " + std::to_string(names_.size()));
    names.push_back(place.first->second);
  }
  known = {std::move(members),
           std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(tensors), std::move(names)))};
  return known.layout;
}

c10::intrusive_ptr<c10::ivalue::Future> BucketHook::run(c10d::GradBucket& bucket, bool callbacks_may_block) {
  return called_by_torch([&] {
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
      const auto now = [future, value, error] {
        if (error) {
          future->setError(for_torch(error));
        } else {
          future->markCompleted(c10::IValue(value));
        }
      };
      if (callbacks_may_block) {
        adapter::CallbackPool::instance().post(now);
      } else {
        now();
      }
    };
    if (buffer.is_sparse()) {
      lanes()->run_sparse(
          index, count, rows_of(buffer), layout->parameters.at(0),
          [complete, sizes = buffer.sizes().vec()](const SparseGradient& rows, const std::exception_ptr& error) {
            complete(error ? at::Tensor() : sparse_of(rows, sizes), error);
          });
    } else {
      GradBucket ours(index, count, view_of(buffer, kOperation, Use::reduced, true).flatten(), std::move(layout));
      lanes()->run(std::move(ours), [complete, buffer](const Tensor& reduced, const std::exception_ptr& error) {
        complete(error ? at::Tensor() : result_of(reduced, buffer), error);
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
