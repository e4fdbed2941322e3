// with_cast: casts buckets to 16 bits for the inner hook.
#include <map>
#include <mutex>

#include <hookline/core/error.hpp>
#include <hookline/hook/wrappers.hpp>

#include "group/float32.hpp"
#include "hook/hook_wrapper.hpp"
#include "kernel/cast.hpp"

namespace hookline {
namespace {

class CastHook final : public hook::HookWrapper {
 public:
  CastHook(HookPtr inner, DType dtype, std::shared_ptr<ProcessGroup> group)
      : HookWrapper(std::move(inner), dtype == DType::f16 ? "fp16" : "bf16"), dtype_(dtype), group_(std::move(group)) {}

 private:
  Future<Tensor> run(GradBucket& bucket) override {
    const DType dtype = bucket.buffer().dtype();
    if (!is_floating(dtype) || size_of(dtype) == 2) co_return co_await run_and_parse(inner(), bucket);
    const auto count = static_cast<std::size_t>(bucket.buffer().numel());
    const Tensor narrow = buffer_of(bucket);
    const Tensor values = group::as_float32(bucket.buffer());
    kernel::narrow(dtype_, values.data<const float>(), narrow.mutable_bytes(), count);
    GradBucket cast = bucket;
    cast.set_buffer(narrow);
    const Tensor result = co_await run_and_parse(inner(), cast);
    kernel::widen(dtype_, result.bytes(), values.data<float>(), count);
    group::from_float32(values, bucket.buffer());
    co_return bucket.buffer();
  }

  // Reused across steps, in the group's memory, so collectives work on it in place.
  Tensor buffer_of(const GradBucket& bucket) {
    const std::lock_guard lock(mutex_);
    Tensor& buffer = buffers_[bucket.index()];
    if (buffer.dtype() != dtype_ || buffer.numel() != bucket.buffer().numel()) {
      buffer = group_->empty({bucket.buffer().numel()}, dtype_);
    }
    return buffer;
  }

  const DType dtype_;
  const std::shared_ptr<ProcessGroup> group_;
  std::mutex mutex_;
  std::map<std::size_t, Tensor> buffers_;
};

}  // namespace

HookPtr with_cast(HookPtr inner, DType dtype, std::shared_ptr<ProcessGroup> group) {
  if (dtype != DType::f16 && dtype != DType::bf16) {
    throw InvalidArgument("with_cast: expected the dtype float16 or bfloat16, got " + std::string(name(dtype)));
  }
  if (!group) throw InvalidArgument("with_cast: process group must not be null");
  return std::make_shared<CastHook>(std::move(inner), dtype, std::move(group));
}

}  // namespace hookline
