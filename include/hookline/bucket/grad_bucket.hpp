// The gradients of some parameters in one flat buffer: what a communication hook gets.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hookline/core/dims.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// Where the parameters of a bucket lie in its buffer. Offsets and lengths count elements.
struct BucketLayout {
  std::vector<std::size_t> offsets = {};
  std::vector<std::size_t> lengths = {};
  std::vector<Dims> sizes = {};
  std::vector<Tensor> parameters = {};  ///< empty if they are not known
  std::vector<std::string> names = {};  ///< of the parameters; the same
};

/// The layout of gradients of these sizes, one behind the other.
HOOKLINE_EXPORT BucketLayout layout_of(std::vector<Dims> sizes, std::vector<Tensor> parameters = {},
                                       std::vector<std::string> names = {});

/// A handle: copies share the layout and see the same elements, but set_buffer changes one copy alone. For a parameter
/// with a sparse gradient the buffer has the values of the rows that any rank has, and sparse_grad_indices their
/// numbers.
class HOOKLINE_EXPORT GradBucket {
 public:
  /// Throws InvalidArgument where the buffer is not flat and contiguous, or does not have the elements that the layout
  /// asks for, or the index is not below the count, or the layout is null.
  GradBucket(std::size_t index, std::size_t bucket_count, Tensor buffer, std::shared_ptr<const BucketLayout> layout,
             std::optional<Tensor> sparse_grad_indices = std::nullopt);

  std::size_t index() const noexcept { return index_; }
  std::size_t bucket_count() const noexcept { return bucket_count_; }
  /// Whether it is the last of the step.
  bool is_last() const noexcept { return index_ + 1 == bucket_count_; }

  const Tensor& buffer() const noexcept { return buffer_; }
  /// Another buffer for this bucket, of the same number of elements; its dtype may differ, as a hook that compresses
  /// has it. InvalidArgument where it does not fit.
  void set_buffer(Tensor buffer);

  /// Reports this rank's contribution to the mean: the gradients as the other ranks decode them. A hook that declares
  /// HookTraits::reports_contribution calls it once a run, before its Future completes, from any thread. Copies the
  /// values, so that the tensor may be reduced in place afterwards. Flat, floating point, of the buffer's number of
  /// elements; InvalidArgument otherwise. Does nothing where no error_feedback asks for it.
  void set_contribution(const Tensor& contribution);
  /// True if set_contribution keeps what it gets; a hook may skip decoding where it is false.
  bool wants_contribution() const noexcept { return contribution_ != nullptr; }
  /// Makes this bucket, and copies made of it from now on, keep the contribution reported to any one of them.
  void request_contribution();
  /// The contribution that was reported since it was requested; empty where none was.
  std::optional<Tensor> contribution() const;

  const std::vector<std::size_t>& offsets() const noexcept { return layout_->offsets; }
  const std::vector<std::size_t>& lengths() const noexcept { return layout_->lengths; }
  const std::vector<Dims>& sizes() const noexcept { return layout_->sizes; }
  const std::vector<Tensor>& parameters() const noexcept { return layout_->parameters; }
  const std::vector<std::string>& names() const noexcept { return layout_->names; }
  /// The same object as long as the parameters lie in the same places.
  const std::shared_ptr<const BucketLayout>& layout() const noexcept { return layout_; }
  const std::optional<Tensor>& sparse_grad_indices() const noexcept { return sparse_grad_indices_; }

  /// Views of the buffer with the parameters' shapes, in the order of the layout.
  std::vector<Tensor> gradients() const;

 private:
  std::size_t index_;
  std::size_t bucket_count_;
  Tensor buffer_;
  std::shared_ptr<const BucketLayout> layout_;
  std::optional<Tensor> sparse_grad_indices_;
  std::shared_ptr<std::optional<Tensor>> contribution_;  ///< shared by copies; null where it is not wanted
};

}  // namespace hookline
