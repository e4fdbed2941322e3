// Tensor: a strided view of CPU memory that shares ownership of it.
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

/// A handle with the semantics of a pointer: copies share the elements, and const does not protect them. Strides and
/// offsets count elements. Accesses to the elements are not synchronized.
class HOOKLINE_EXPORT Tensor {
 public:
  /// A tensor of float32 with no elements.
  Tensor();

  /// Allocates memory aligned to 64 bytes; `empty` leaves it uninitialized. Throws ResourceError if out of memory.
  static Tensor empty(const Dims& shape, DType dtype = DType::f32);
  static Tensor zeros(const Dims& shape, DType dtype = DType::f32);
  static Tensor full(const Dims& shape, double value, DType dtype = DType::f32);

  /// Returns a one-dimensional view of a vector, array or span, which the caller keeps alive. A view of const elements
  /// is read-only.
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
  static Tensor borrow(R&&) = delete;  // a temporary would dangle

  struct WrapOptions {
    std::optional<Dims> strides = std::nullopt;  ///< row-major if not given
    std::shared_ptr<void> owner = nullptr;       ///< kept alive by every view of the memory
    bool read_only = false;
  };
  /// Returns a view of foreign memory. Throws InvalidArgument for a negative extent, an overflowing size, misaligned
  /// memory, or a null pointer with elements.
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

  /// Returns a pointer to the first element. `data<float>()` throws InvalidArgument for another dtype or a read-only
  /// tensor, `data<const float>()` for another dtype only. mutable_bytes() throws for a read-only tensor.
  template <class T>
  T* data() const {
    check_access(dtype_of<T>, !std::is_const_v<T>);
    return reinterpret_cast<T*>(address());
  }
  const std::byte* bytes() const noexcept { return address(); }
  std::byte* mutable_bytes() const;

  /// Returns the only element of a one-element tensor, converted to T.
  template <class T>
  T item() const {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return static_cast<T>(integer_item());
    else return static_cast<T>(real_item());
  }

  /// Returns a view of the elements start, start + step, … below stop of dimension `dim`. Negative positions count from
  /// the end.
  Tensor slice(std::size_t dim, std::int64_t start, std::int64_t stop, std::int64_t step = 1) const;
  /// Returns a view with another shape; one extent may be -1 (inferred). Throws InvalidArgument if it needs a copy.
  Tensor reshape(Dims shape) const;
  Tensor flatten() const;
  /// Returns a view of the bytes as another dtype of the same size, such as float16 as int16.
  Tensor view_as(DType dtype) const;
  Tensor as_read_only() const;

  /// Returns this tensor if it is contiguous, otherwise a contiguous copy.
  Tensor contiguous() const;
  Tensor clone() const;
  /// Copies from a tensor of the same shape and dtype with any layout. The two must not overlap unless they are the
  /// same view.
  void copy_from(const Tensor& source) const;
  /// Sets every element. For integer dtypes the value is truncated towards zero; throws InvalidArgument if it is out of
  /// range.
  void fill(double value) const;
  /// Multiplies every element; integer results are truncated towards zero.
  const Tensor& operator*=(double factor) const;

  /// Takes ownership of a DLPack tensor and calls its deleter when the last view is destroyed. Throws InvalidArgument
  /// for inconsistent fields and Unsupported for another device or dtype; ownership then stays with the caller.
  static Tensor from_dlpack(DLManagedTensor* managed);
  static Tensor from_dlpack(DLManagedTensorVersioned* managed);
  /// Returns a new DLPack tensor, owned by the caller, that keeps this memory alive. The unversioned form has no
  /// read-only flag, so it throws InvalidArgument for a read-only tensor.
  DLManagedTensor* to_dlpack_unversioned() const;
  DLManagedTensorVersioned* to_dlpack() const;

 private:
  std::byte* address() const noexcept { return base_ + offset_ * static_cast<std::int64_t>(itemsize()); }
  void check_access(DType dtype, bool writable) const;
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

/// Returns "float32[2, 3]", with strides if not contiguous and "(read-only)". For error messages and debuggers.
HOOKLINE_EXPORT std::string to_string(const Tensor& tensor);

}  // namespace hookline
