// The scalar reference of collectives, computed element by element from the inputs of all ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <hookline/core/reduce_op.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline::testing {

/// Returns a rank's input at a position: small, so that sums and products of seven ranks are exact in every dtype, and
/// different between ranks, positions and parts.
inline double element(int rank, std::int64_t position, int part = 0) {
  return static_cast<double>(1 + (rank * 5 + position * 3 + position / 7 + part * 11) % 2);
}

template <class T>
T as(double value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 1;
  } else {
    return static_cast<T>(value);
  }
}

/// Sets every element of a tensor of any layout to f(position), in logical order.
template <class F>
void fill_with(const Tensor& tensor, F&& f) {
  const Tensor flat = Tensor::empty({tensor.numel()}, tensor.dtype());
  visit_dtype(tensor.dtype(), [&](auto e) {
    using T = decltype(e);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) flat.data<T>()[i] = as<T>(f(i));
  });
  tensor.copy_from(flat.reshape(tensor.shape()));
}

/// Returns the position of the first element that differs bitwise from `expected`, or -1.
inline std::int64_t first_difference(const Tensor& tensor, const Tensor& expected) {
  const Tensor a = tensor.contiguous();
  const Tensor b = expected.contiguous();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i) * a.itemsize();
    if (std::memcmp(a.bytes() + at, b.bytes() + at, a.itemsize()) != 0) return i;
  }
  return -1;
}

/// Returns the reduction of all ranks' elements at a position, in the arithmetic of T.
template <class T>
T reduced(ReduceOp op, int ranks, std::int64_t position, int part) {
  using Kind = ReduceOp::Kind;
  const auto at = [&](int r) { return as<T>(element(r, position, part)); };
  if constexpr (std::is_same_v<T, bool>) {
    bool x = at(0);
    for (int r = 1; r < ranks; ++r) {
      if (op.kind() == Kind::bxor) x = x != at(r);
      else if (op.kind() == Kind::product || op.kind() == Kind::min || op.kind() == Kind::band) x = x && at(r);
      else x = x || at(r);
    }
    return x;
  } else {
    double x = op.kind() == Kind::premul_sum ? static_cast<double>(as<double>(element(0, position, part))) * op.factor()
                                             : element(0, position, part);
    for (int r = 1; r < ranks; ++r) {
      const double y = element(r, position, part);
      const auto bits = [](double v) { return static_cast<std::int64_t>(v); };
      switch (op.kind()) {
        case Kind::sum:
        case Kind::avg: x += y; break;
        case Kind::product: x *= y; break;
        case Kind::min: x = std::min(x, y); break;
        case Kind::max: x = std::max(x, y); break;
        case Kind::band: x = static_cast<double>(bits(x) & bits(y)); break;
        case Kind::bor: x = static_cast<double>(bits(x) | bits(y)); break;
        case Kind::bxor: x = static_cast<double>(bits(x) ^ bits(y)); break;
        case Kind::premul_sum: x += y * op.factor(); break;
      }
    }
    if (op.kind() == Kind::avg) {
      if constexpr (std::is_integral_v<T>) x = std::trunc(x / ranks);
      else if constexpr (std::is_same_v<T, double>) x = x / ranks;
      else x = static_cast<double>(static_cast<float>(x) / static_cast<float>(ranks));
    }
    return as<T>(x);
  }
}

/// Returns a tensor with the reduction at every position.
inline Tensor expected_reduction(const Tensor& like, ReduceOp op, int ranks, int part = 0) {
  const Tensor flat = Tensor::empty({like.numel()}, like.dtype());
  visit_dtype(like.dtype(), [&](auto e) {
    using T = decltype(e);
    for (std::int64_t i = 0; i < like.numel(); ++i) flat.data<T>()[i] = reduced<T>(op, ranks, i, part);
  });
  return flat.reshape(like.shape());
}

/// Returns a tensor with the input of a rank.
inline Tensor expected_input(const Tensor& like, int rank, int part = 0) {
  const Tensor t = Tensor::empty(like.shape(), like.dtype());
  fill_with(t, [&](std::int64_t i) { return element(rank, i, part); });
  return t;
}

}  // namespace hookline::testing
