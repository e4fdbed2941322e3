// Dims: the shape or the strides of a tensor, stored inline.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <hookline/core/export.hpp>

namespace hookline {

/// The maximum number of dimensions of a tensor.
inline constexpr std::size_t kMaxDims = 16;

/// A list of at most kMaxDims integers. Throws InvalidArgument for longer lists.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values) : Dims(values.size(), 0) {
    std::copy(values.begin(), values.end(), values_.begin());
  }
  HOOKLINE_EXPORT Dims(std::size_t size, std::int64_t value);

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::int64_t& operator[](std::size_t i) noexcept { return values_[i]; }
  std::int64_t operator[](std::size_t i) const noexcept { return values_[i]; }
  std::int64_t* begin() noexcept { return values_.data(); }
  std::int64_t* end() noexcept { return values_.data() + size_; }
  const std::int64_t* begin() const noexcept { return values_.data(); }
  const std::int64_t* end() const noexcept { return values_.data() + size_; }

  void push_back(std::int64_t value) {
    Dims longer(size_ + 1, value);
    std::copy(begin(), end(), longer.begin());
    *this = longer;
  }

  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, kMaxDims> values_{};
  std::size_t size_ = 0;
};

/// Returns "[2, 3]".
HOOKLINE_EXPORT std::string to_string(const Dims& dims);

}  // namespace hookline
