// A strided view of memory on the CPU that keeps whoever owns the memory alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>

#include <hookline/core/dims.hpp>
#include <hookline/core/dtype.hpp>
#include <hookline/core/export.hpp>

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace hookline {

/// A handle: copies see the same elements, and a const Tensor still lets its elements be written, as a pointer would.
/// Strides and offsets count elements. Not synchronised: whoever shares the elements between threads orders the access.
class HOOKLINE_EXPORT Tensor {
 public:
  /// A tensor of float32 with no elements.
  Tensor();

  /// New memory, aligned to 64 bytes; `empty` leaves it as it comes. Throws ResourceError with the size asked for.
  static Tensor empty(const Dims& shape, DType dtype = DType::f32);
  static Tensor zeros(const Dims& shape, DType dtype = DType::f32);
  static Tensor full(const Dims& shape, double value, DType dtype = DType::f32);

  /// A one-dimensional view of a vector, array or span that the caller keeps alive. Const elements give a read-only
  /// one.
  template <std::ranges::contiguous_range R>
    requires std::ranges::sized_range<R>
  static Tensor borrow(R& range) {
    using Element = std::remove_reference_t<std::ranges::range_reference_t<R&>>;
    return wrap(const_cast<std::remove_const_t<Element>*>(std::ranges::data(range)),
                {static_cast<std::int64_t>(std::ranges::size(range))}, dtype_of<Element>,
                {.read_only = std::is_const_v<Element>});
  }
  template <std::ranges::contiguous_range R>
    requires(!std::is_lvalue_reference_v<R>)
  static Tensor borrow(R&&) = delete;  // the elements would be gone at the end of the statement

  struct WrapOptions {
    std::optional<Dims> strides = std::nullopt;  ///< row-major where not given
    std::shared_ptr<void> owner = nullptr;       ///< kept while any view of the memory lives
    bool read_only = false;
  };
  /// A view of foreign memory. InvalidArgument for a negative extent, a size that overflows, or null with elements.
  static Tensor wrap(void* data, const Dims& shape, DType dtype, const WrapOptions& options);
  static Tensor wrap(void* data, const Dims& shape, DType dtype);

  DType dtype() const noexcept { return dtype_; }
  const Dims& shape() const noexcept { return shape_; }
  const Dims& strides() const noexcept { return strides_; }
  std::int64_t storage_offset() const noexcept { return offset_; }
  std::size_t dim() const noexcept { return shape_.size(); }
  std::int64_t numel() const noexcept { return numel_; }
  std::size_t itemsize() const noexcept { return size_of(dtype_); }
  std::size_t nbytes() const noexcept { return static_cast<std::size_t>(numel_) * itemsize(); }
  bool read_only() const noexcept { return read_only_; }
  bool is_contiguous() const noexcept { return contiguous_; }
  const std::shared_ptr<void>& owner() const noexcept { return owner_; }

  /// The first element. `data<float>()` throws InvalidArgument for another dtype or a read-only tensor;
  /// `data<const float>()` reads any. The untyped ones check the same, less the dtype.
  template <class T>
  T* data() const {
    check_access(dtype_of<T>, !std::is_const_v<T>);
    return reinterpret_cast<T*>(address());
  }
  const std::byte* bytes() const noexcept { return address(); }
  std::byte* mutable_bytes() const;

  /// The one element of a tensor that has just one, converted.
  template <class T>
  T item() const {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return static_cast<T>(integer_item());
    else return static_cast<T>(real_item());
  }

  /// Elements start, start + step, … below stop of dimension `dim`. Negative positions count from the end.
  Tensor slice(std::size_t dim, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const;
  /// The same elements under another shape, one extent may be -1. InvalidArgument where that takes a copy.
  Tensor reshape(Dims shape) const;
  Tensor flatten() const;
  /// The same bytes seen as another dtype of the same size, say float16 as int16.
  Tensor view_as(DType dtype) const;
  Tensor as_read_only() const;

  /// This tensor where it is contiguous, else a copy that is.
  Tensor contiguous() const;
  Tensor clone() const;
  /// Copies element by element from a tensor of the same shape and dtype, whatever the two layouts. They must not
  /// overlap unless they are the same view.
  void copy_from(const Tensor& source) const;
  /// InvalidArgument where an integer cannot be the value. Integers are rounded towards zero, and beyond 2^53 to what a
  /// double can be.
  void fill(double value) const;
  /// Multiplies every element; integers are rounded towards zero.
  const Tensor& operator*=(double factor) const;

  /// Takes over a DLPack tensor: its deleter runs when the last view is gone, and not at all where this throws.
  /// InvalidArgument for what makes no sense, Unsupported for another device or dtype.
  static Tensor from_dlpack(DLManagedTensor* managed);
  static Tensor from_dlpack(DLManagedTensorVersioned* managed);
  /// A new DLPack tensor that keeps this memory alive; the caller owns it. The old form cannot say read-only:
  /// InvalidArgument for such a tensor.
  DLManagedTensor* to_dlpack_unversioned() const;
  DLManagedTensorVersioned* to_dlpack() const;

 private:
  std::byte* address() const noexcept { return base_ + offset_ * static_cast<std::int64_t>(itemsize()); }
  void check_access(DType dtype, bool write) const;
  std::int64_t integer_item() const;
  double real_item() const;
  void set_layout(const Dims& shape, const Dims& strides);

  std::byte* base_ = nullptr;
  std::int64_t offset_ = 0;
  std::int64_t numel_ = 0;
  Dims shape_;
  Dims strides_;
  std::shared_ptr<void> owner_;
  DType dtype_ = DType::f32;
  bool read_only_ = false;
  bool contiguous_ = true;
};

/// "float32[2, 3]", with "read-only" and the strides where they matter: for error messages and debuggers.
HOOKLINE_EXPORT std::string to_string(const Tensor& tensor);

}  // namespace hookline
