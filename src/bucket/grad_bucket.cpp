// GradBucket: validation of buffer and layout, and gradient views.
#include <hookline/bucket/grad_bucket.hpp>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

std::size_t elements_of(const BucketLayout& layout) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < layout.offsets.size(); ++i) {
    count = std::max(count, layout.offsets[i] + layout.lengths[i]);
  }
  return count;
}

std::size_t numel_of(const Dims& shape) {
  std::size_t numel = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(numel, static_cast<std::size_t>(extent), &numel)) {
      throw InvalidArgument(fmt::format(
          "GradBucket: invalid gradient shape {}: expected dimensions of at least 0 whose product fits 64 bits",
          to_string(shape)));
    }
  }
  return numel;
}

void check_buffer(const Tensor& buffer, std::size_t elements) {
  if (buffer.dim() != 1 || !buffer.is_contiguous() || static_cast<std::size_t>(buffer.numel()) != elements) {
    throw InvalidArgument(fmt::format("GradBucket: expected a flat contiguous buffer of {} elements, got {}", elements,
                                      to_string(buffer)));
  }
}

}  // namespace

BucketLayout layout_of(std::vector<Dims> sizes, std::vector<Tensor> parameters, std::vector<std::string> names) {
  BucketLayout layout;
  std::size_t offset = 0;
  for (const Dims& shape : sizes) {
    const std::size_t length = numel_of(shape);
    layout.offsets.push_back(offset);
    layout.lengths.push_back(length);
    if (__builtin_add_overflow(offset, length, &offset)) throw InvalidArgument("GradBucket: the size overflows");
  }
  layout.sizes = std::move(sizes);
  layout.parameters = std::move(parameters);
  layout.names = std::move(names);
  return layout;
}

GradBucket::GradBucket(std::size_t index, std::size_t bucket_count, Tensor buffer,
                       std::shared_ptr<const BucketLayout> layout, std::optional<Tensor> sparse_grad_indices)
    : index_(index),
      bucket_count_(bucket_count),
      buffer_(std::move(buffer)),
      layout_(std::move(layout)),
      sparse_grad_indices_(std::move(sparse_grad_indices)) {
  if (index_ >= bucket_count_) {
    throw InvalidArgument(fmt::format("GradBucket: index {} is out of range for {} buckets", index_, bucket_count_));
  }
  if (!layout_) {
    throw InvalidArgument(
        fmt::format("GradBucket {} of {}: the layout is null. Create one with layout_of().", index_, bucket_count_));
  }
  const std::size_t gradients = layout_->offsets.size();
  if (layout_->lengths.size() != gradients || layout_->sizes.size() != gradients) {
    throw InvalidArgument(
        fmt::format("GradBucket: the layout must have one offset, length and size per gradient: got {} offsets, {} "
                    "lengths and {} sizes",
                    gradients, layout_->lengths.size(), layout_->sizes.size()));
  }
  if (!layout_->parameters.empty() && layout_->parameters.size() != gradients) {
    throw InvalidArgument(
        fmt::format("GradBucket: expected {} parameters, got {}", gradients, layout_->parameters.size()));
  }
  if (!layout_->names.empty() && layout_->names.size() != gradients) {
    throw InvalidArgument(fmt::format("GradBucket: expected {} names, got {}", gradients, layout_->names.size()));
  }
  check_buffer(buffer_, elements_of(*layout_));
}

GradBucket GradBucket::of(const Tensor& tensor, std::vector<Dims> sizes) {
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(fmt::format("GradBucket::of: expected a contiguous tensor, got {}", to_string(tensor)));
  }
  if (sizes.empty()) sizes.push_back(tensor.shape());
  auto layout = std::make_shared<const BucketLayout>(layout_of(std::move(sizes)));
  return {0, 1, tensor.flatten(), std::move(layout)};
}

void GradBucket::set_buffer(Tensor buffer) {
  check_buffer(buffer, static_cast<std::size_t>(buffer_.numel()));
  buffer_ = std::move(buffer);
}

void GradBucket::set_contribution(const Tensor& contribution) {
  if (!is_floating(contribution.dtype()) || contribution.dim() != 1 || contribution.numel() != buffer_.numel()) {
    throw InvalidArgument(fmt::format(
        "set_contribution of bucket {}: expected a flat floating-point tensor of {} elements, got {}. Report the "
        "gradients of this rank as the other ranks decode them.",
        index_, buffer_.numel(), to_string(contribution)));
  }
  if (contribution_) *contribution_ = contribution.clone();
}

void GradBucket::request_contribution() { contribution_ = std::make_shared<std::optional<Tensor>>(); }

std::optional<Tensor> GradBucket::contribution() const { return contribution_ ? *contribution_ : std::nullopt; }

std::vector<Tensor> GradBucket::gradients() const {
  std::vector<Tensor> views;
  views.reserve(layout_->offsets.size());
  for (std::size_t i = 0; i < layout_->offsets.size(); ++i) {
    const auto begin = static_cast<std::int64_t>(layout_->offsets[i]);
    const auto end = begin + static_cast<std::int64_t>(layout_->lengths[i]);
    views.push_back(buffer_.slice(0, begin, end).reshape(layout_->sizes[i]));
  }
  return views;
}

}  // namespace hookline
