// GradBucket: gradients of several parameters in one flat buffer, the argument of communication hooks.
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

/// The positions of the parameters in a bucket's buffer. Offsets and lengths count elements.
struct BucketLayout {
  std::vector<std::size_t> offsets = {};
  std::vector<std::size_t> lengths = {};
  std::vector<Dims> sizes = {};
  std::vector<Tensor> parameters = {};  ///< empty if unknown
  std::vector<std::string> names = {};  ///< of the parameters; empty if unknown
};

/// Returns the layout of consecutive gradients of these shapes.
HOOKLINE_EXPORT BucketLayout layout_of(std::vector<Dims> sizes, std::vector<Tensor> parameters = {},
                                       std::vector<std::string> names = {});

/// A handle to a bucket: copies share layout and elements, but set_buffer affects one copy only. For a sparse gradient,
/// the buffer holds the values of the union of all ranks' rows, and sparse_grad_indices their row indices.
class HOOKLINE_EXPORT GradBucket {
 public:
  /// Throws InvalidArgument unless the buffer is flat and contiguous with the number of elements of the layout, the
  /// index is below the count, and the layout is not null.
  GradBucket(std::size_t index, std::size_t bucket_count, Tensor buffer, std::shared_ptr<const BucketLayout> layout,
             std::optional<Tensor> sparse_grad_indices = std::nullopt);

  /// Returns a standalone bucket, index 0 of 1, for running a hook outside a reducer: run_and_parse(hook, bucket). The
  /// buffer shares the tensor's memory. `sizes` are the shapes of its gradients; by default the bucket has one gradient
  /// of the tensor's shape. Throws InvalidArgument unless the tensor is contiguous and holds exactly these gradients.
  static GradBucket of(const Tensor& tensor, std::vector<Dims> sizes = {});

  std::size_t index() const noexcept { return index_; }
  std::size_t bucket_count() const noexcept { return bucket_count_; }
  /// True for the last bucket of the step.
  bool is_last() const noexcept { return index_ + 1 == bucket_count_; }

  const Tensor& buffer() const noexcept { return buffer_; }
  /// Replaces the buffer by one with the same number of elements, possibly of another dtype. Throws InvalidArgument if
  /// it does not fit.
  void set_buffer(Tensor buffer);

  /// Reports this rank's contribution to the mean: the gradients as the other ranks decode them. A hook that declares
  /// HookTraits::reports_contribution calls it once per run, from any thread, before its Future completes. Copies the
  /// values. Throws InvalidArgument unless `contribution` is flat, floating point and as long as the buffer. No effect
  /// unless requested by error feedback.
  void set_contribution(const Tensor& contribution);
  /// True if a contribution was requested; otherwise a hook may skip decoding.
  bool wants_contribution() const noexcept { return contribution_ != nullptr; }
  /// Requests the contribution from this bucket and from copies made after this call.
  void request_contribution();
  /// Returns the contribution reported since the request, if any.
  std::optional<Tensor> contribution() const;

  const std::vector<std::size_t>& offsets() const noexcept { return layout_->offsets; }
  const std::vector<std::size_t>& lengths() const noexcept { return layout_->lengths; }
  const std::vector<Dims>& sizes() const noexcept { return layout_->sizes; }
  const std::vector<Tensor>& parameters() const noexcept { return layout_->parameters; }
  const std::vector<std::string>& names() const noexcept { return layout_->names; }
  /// Returns the layout; the same object as long as the layout is unchanged.
  const std::shared_ptr<const BucketLayout>& layout() const noexcept { return layout_; }
  const std::optional<Tensor>& sparse_grad_indices() const noexcept { return sparse_grad_indices_; }

  /// Returns views of the buffer with the parameters' shapes, in layout order.
  std::vector<Tensor> gradients() const;

 private:
  std::size_t index_;
  std::size_t bucket_count_;
  Tensor buffer_;
  std::shared_ptr<const BucketLayout> layout_;
  std::optional<Tensor> sparse_grad_indices_;
  std::shared_ptr<std::optional<Tensor>> contribution_;  ///< shared by copies; null unless requested
};

}  // namespace hookline
