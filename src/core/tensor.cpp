// Tensor: allocation, views and element-wise operations on strided layouts.
#include <hookline/core/tensor.hpp>

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/strided.hpp"

namespace hookline {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargePage = std::size_t{2} * 1024 * 1024;

[[noreturn]] void throw_size_overflow(const Dims& shape) {
  throw InvalidArgument(fmt::format("tensor shape {} is too large: its size overflows", to_string(shape)));
}

std::int64_t checked_product(std::int64_t a, std::int64_t b, const Dims& shape) {
  std::int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw_size_overflow(shape);
  return product;
}

std::int64_t checked_numel(const Dims& shape, DType dtype) {
  std::int64_t numel = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw InvalidArgument(fmt::format("tensor shape {} has a negative extent", to_string(shape)));
    // An extent of 0 must not hide an overflow of the others.
    numel = checked_product(numel, std::max<std::int64_t>(extent, 1), shape);
  }
  checked_product(numel, static_cast<std::int64_t>(size_of(dtype)), shape);
  return std::find(shape.begin(), shape.end(), 0) == shape.end() ? numel : 0;
}

// The byte distance from the first element to any other must fit in 64 bits.
void check_strides(const Dims& shape, const Dims& strides, DType dtype) {
  if (strides.size() != shape.size()) {
    throw InvalidArgument(
        fmt::format("tensor shape {} and strides {} have different lengths", to_string(shape), to_string(strides)));
  }
  std::int64_t max_offset = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 2) continue;
    if (strides[i] == std::numeric_limits<std::int64_t>::min()) throw_size_overflow(shape);
    const std::int64_t step = checked_product(std::abs(strides[i]), shape[i] - 1, shape);
    if (__builtin_add_overflow(max_offset, step, &max_offset)) throw_size_overflow(shape);
  }
  checked_product(max_offset, static_cast<std::int64_t>(size_of(dtype)), shape);
}

Dims row_major_strides(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

bool is_row_major(const Dims& shape, const Dims& strides) {
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

// Large tensors request huge pages, which reduce TLB misses.
std::shared_ptr<void> allocate(std::size_t bytes) {
  const bool large = bytes >= 2 * kLargePage;
  const std::align_val_t alignment{large ? kLargePage : kAlignment};
  void* memory = ::operator new(bytes, alignment, std::nothrow);
  if (!memory) throw ResourceError(fmt::format("no memory for a tensor of {} bytes", bytes));
  if (large) madvise(memory, bytes, MADV_HUGEPAGE);  // a hint; failure is harmless
  return {memory, [alignment](void* p) { ::operator delete(p, alignment); }};
}

// Returns the strides of shape `to` for a view that needs no copy; nullopt if there are none. Merges evenly spaced
// dimensions and splits them into the new extents, from last to first.
std::optional<Dims> reshaped_strides(const Dims& from, const Dims& strides, const Dims& to) {
  const core::StridedPair runs(from, strides, strides);
  Dims result(to.size(), 1);
  std::size_t next = to.size();
  for (std::size_t i = runs.shape.size(); i-- > 0;) {
    std::int64_t taken = 1;
    while (next > 0 && taken < runs.shape[i]) {
      --next;
      result[next] = runs.a[i] * taken;
      taken *= to[next];
    }
    if (taken != runs.shape[i]) return std::nullopt;
  }
  return result;
}

template <class T>
T convert_to(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

}  // namespace

Tensor::Tensor() : shape_{0}, strides_{1} {}

Tensor Tensor::empty(const Dims& shape, DType dtype) {
  const auto bytes = static_cast<std::size_t>(checked_numel(shape, dtype)) * size_of(dtype);
  std::shared_ptr<void> memory = allocate(std::max<std::size_t>(bytes, 1));
  return wrap(memory.get(), shape, dtype, {.owner = memory});
}

Tensor Tensor::zeros(const Dims& shape, DType dtype) {
  Tensor result = empty(shape, dtype);
  std::memset(result.mutable_bytes(), 0, result.nbytes());
  return result;
}

Tensor Tensor::full(const Dims& shape, double value, DType dtype) {
  Tensor result = empty(shape, dtype);
  result.fill(value);
  return result;
}

Tensor Tensor::wrap(void* data, const Dims& shape, DType dtype) { return wrap(data, shape, dtype, {}); }

Tensor Tensor::wrap(void* data, const Dims& shape, DType dtype, const WrapOptions& options) {
  Tensor result;
  result.base_ = static_cast<std::byte*>(data);
  result.owner_ = options.owner;
  result.dtype_ = dtype;
  result.read_only_ = options.read_only;
  result.set_layout(shape, options.strides ? *options.strides : row_major_strides(shape));
  if (!data && result.numel_ > 0) {
    throw InvalidArgument(fmt::format("Tensor::wrap: data is null, but shape {} has elements", to_string(shape)));
  }
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) != 0) {
    throw InvalidArgument(fmt::format("Tensor::wrap: data at {} is not aligned for {}", data, name(dtype)));
  }
  return result;
}

void Tensor::set_layout(const Dims& shape, const Dims& strides) {
  numel_ = checked_numel(shape, dtype_);
  check_strides(shape, strides, dtype_);
  shape_ = shape;
  strides_ = strides;
  contiguous_ = numel_ == 0 || is_row_major(shape, strides);
}

std::byte* Tensor::mutable_bytes() const {
  check_access(dtype_, true);
  return address();
}

void Tensor::check_access(DType dtype, bool writable) const {
  if (dtype != dtype_) {
    throw InvalidArgument(
        fmt::format("Tensor::data: expected elements of type {}, got {}", name(dtype), to_string(*this)));
  }
  if (writable && read_only_) throw InvalidArgument(fmt::format("{} cannot be written to", to_string(*this)));
}

std::int64_t Tensor::integer_item() const {
  return visit_dtype(dtype_, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_integral_v<T>) {
      if (numel_ == 1) return static_cast<std::int64_t>(*data<const T>());
    }
    return static_cast<std::int64_t>(real_item());
  });
}

double Tensor::real_item() const {
  if (numel_ != 1) throw InvalidArgument(fmt::format("Tensor::item: expected one element, got {}", to_string(*this)));
  return visit_dtype(dtype_, [&](auto element) { return as_double(*data<const decltype(element)>()); });
}

Tensor Tensor::slice(std::size_t dim, std::int64_t start, std::int64_t stop, std::int64_t step) const {
  if (dim >= shape_.size()) {
    throw InvalidArgument(fmt::format("Tensor::slice: dimension {} is out of range for {}", dim, to_string(*this)));
  }
  if (step < 1) throw InvalidArgument(fmt::format("Tensor::slice: expected a step of at least 1, got {}", step));
  const std::int64_t extent = shape_[dim];
  const auto position = [extent](std::int64_t p) {
    return std::clamp<std::int64_t>(p < 0 ? p + extent : p, 0, extent);
  };
  start = position(start);
  stop = std::max(start, position(stop));

  Tensor result = *this;
  Dims shape = shape_;
  Dims strides = strides_;
  shape[dim] = (stop - start) / step + ((stop - start) % step != 0 ? 1 : 0);
  if (shape[dim] > 1) strides[dim] *= step;
  if (shape[dim] > 0) result.offset_ += start * strides_[dim];
  result.set_layout(shape, strides);
  return result;
}

Tensor Tensor::reshape(Dims shape) const {
  const Dims requested = shape;
  const auto inferred = std::find(shape.begin(), shape.end(), -1);
  if (inferred != shape.end()) {
    *inferred = 1;
    *inferred = numel_ / std::max<std::int64_t>(checked_numel(shape, dtype_), 1);
  }
  if (checked_numel(shape, dtype_) != numel_) {
    throw InvalidArgument(fmt::format("Tensor::reshape: shape {} does not fit {}, which has {} elements",
                                      to_string(requested), to_string(*this), numel_));
  }
  const std::optional<Dims> strides =
      contiguous_ ? row_major_strides(shape) : reshaped_strides(shape_, strides_, shape);
  if (!strides) {
    throw InvalidArgument(
        fmt::format("Tensor::reshape: {} cannot be viewed as {} without a copy. Call contiguous() first.",
                    to_string(*this), to_string(shape)));
  }
  Tensor result = *this;
  result.set_layout(shape, *strides);
  return result;
}

Tensor Tensor::flatten() const { return reshape({numel_}); }

Tensor Tensor::view_as(DType dtype) const {
  if (size_of(dtype) != itemsize()) {
    throw InvalidArgument(
        fmt::format("Tensor::view_as: {} and {} have different element sizes", to_string(*this), name(dtype)));
  }
  Tensor result = *this;
  result.dtype_ = dtype;
  return result;
}

Tensor Tensor::as_read_only() const {
  Tensor result = *this;
  result.read_only_ = true;
  return result;
}

Tensor Tensor::contiguous() const { return contiguous_ ? *this : clone(); }

Tensor Tensor::clone() const {
  Tensor result = empty(shape_, dtype_);
  result.copy_from(*this);
  return result;
}

void Tensor::copy_from(const Tensor& source) const {
  if (source.dtype_ != dtype_ || source.shape_ != shape_) {
    throw InvalidArgument(fmt::format("Tensor::copy_from: cannot copy {} into {}: shapes and dtypes must be equal",
                                      to_string(source), to_string(*this)));
  }
  std::byte* to = mutable_bytes();
  const std::byte* from = source.bytes();
  if (numel_ == 0 || (to == from && strides_ == source.strides_)) return;
  visit_dtype(dtype_, [&](auto element) {
    using T = decltype(element);
    const auto row = [&](std::int64_t offset, std::int64_t source_offset, std::int64_t count, std::int64_t step,
                         std::int64_t source_step) {
      T* out = reinterpret_cast<T*>(to) + offset;
      const T* in = reinterpret_cast<const T*>(from) + source_offset;
      if (step == 1 && source_step == 1) {
        std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(T));
      } else {
        for (std::int64_t i = 0; i < count; ++i) out[i * step] = in[i * source_step];
      }
    };
    core::for_each_row(core::StridedPair(shape_, strides_, source.strides_), row);
  });
}

void Tensor::fill(double value) const {
  visit_dtype(dtype_, [&](auto element) {
    using T = decltype(element);
    T* out = data<T>();
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      using Limits = std::numeric_limits<T>;
      const double whole = std::trunc(value);
      if (!(whole >= static_cast<double>(Limits::min()) && whole < std::ldexp(1.0, Limits::digits))) {
        throw InvalidArgument(fmt::format("Tensor::fill: {} is out of range for {}: expected {} to {}", value,
                                          name(dtype_), Limits::min(), Limits::max()));
      }
    }
    const T filler = convert_to<T>(value);
    core::for_each_row(core::StridedPair(shape_, strides_, strides_), [&](auto at, auto, auto count, auto step, auto) {
      for (std::int64_t i = 0; i < count; ++i) out[at + i * step] = filler;
    });
  });
}

const Tensor& Tensor::operator*=(double factor) const {
  visit_dtype(dtype_, [&](auto element) {
    using T = decltype(element);
    T* out = data<T>();
    core::for_each_row(core::StridedPair(shape_, strides_, strides_), [&](auto at, auto, auto count, auto step, auto) {
      for (std::int64_t i = 0; i < count; ++i) {
        T& x = out[at + i * step];
        if constexpr (std::is_same_v<T, float>) {
          x *= static_cast<float>(factor);
        } else {
          x = convert_to<T>(as_double(x) * factor);
        }
      }
    });
  });
  return *this;
}

std::string to_string(const Tensor& tensor) {
  std::string text = fmt::format("{}{}", name(tensor.dtype()), to_string(tensor.shape()));
  if (!tensor.is_contiguous()) text += fmt::format(" with strides {}", to_string(tensor.strides()));
  if (tensor.read_only()) text += " (read-only)";
  return text;
}

}  // namespace hookline
