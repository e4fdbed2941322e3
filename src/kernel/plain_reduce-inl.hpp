// Reductions as scalar loops over any dtype, auto-vectorized for each target.
#if defined(HOOKLINE_PLAIN_REDUCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HOOKLINE_PLAIN_REDUCE_INL
#undef HOOKLINE_PLAIN_REDUCE_INL
#else
#define HOOKLINE_PLAIN_REDUCE_INL
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>

#include <hookline/core/dtype.hpp>

#include "kernel/reduce_call.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

using Kind = ReduceOp::Kind;

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// The accumulation type of T.
template <class T>
using AccType = std::conditional_t<kIsHalf<T>, float, std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>>;

/// The storage type of T. A foreign bool may hold any byte value.
template <class T>
using StorageType = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

template <class T>
HWY_INLINE AccType<T> widen(StorageType<T> value) {
  if constexpr (std::is_same_v<T, bool>) return value != 0;
  else return static_cast<AccType<T>>(value);
}

/// Returns the scaled addend. A factor of 1 preserves all bits, except NaN payloads, which results drop anyway.
template <class T>
HWY_INLINE AccType<T> scaled(StorageType<T> value, [[maybe_unused]] AccType<T> factor) {
  if constexpr (std::is_floating_point_v<AccType<T>>) return widen<T>(value) * factor;
  else return widen<T>(value);
}

template <Kind K, class W>
HWY_INLINE W combine(W a, W b) {
  if constexpr (K == Kind::min || K == Kind::max) {
    const bool second = K == Kind::min ? b < a : a < b;
    if constexpr (std::is_floating_point_v<W>) return second || b != b ? b : a;
    else return second ? b : a;
  } else if constexpr (std::is_floating_point_v<W>) {
    return K == Kind::sum ? a + b : a * b;
  } else {
    // At least unsigned int: narrower types would be promoted to int, whose overflow is undefined.
    using U = std::conditional_t<(sizeof(W) < sizeof(unsigned)), unsigned, std::make_unsigned_t<W>>;
    const U x = static_cast<U>(a), y = static_cast<U>(b);
    return static_cast<W>(K == Kind::sum       ? x + y
                          : K == Kind::product ? x * y
                          : K == Kind::band    ? x & y
                          : K == Kind::bor     ? x | y
                                               : x ^ y);
  }
}

/// Divides a sum by the number of ranks.
template <class W>
HWY_INLINE W divide(W sum, double divisor) {
  if constexpr (std::is_integral_v<W> && sizeof(W) < 8) {
    // The double quotient of two 32-bit integers never rounds up to the next integer.
    return static_cast<W>(static_cast<double>(sum) / divisor);
  } else {
    return sum / static_cast<W>(divisor);
  }
}

template <class T>
HWY_INLINE StorageType<T> narrow_plain(AccType<T> value) {
  if constexpr (std::is_floating_point_v<AccType<T>>)
    value = value != value ? std::numeric_limits<AccType<T>>::quiet_NaN() : value;
  return static_cast<StorageType<T>>(value);
}

/// Reduces the elements from `begin` to `end` in blocks of constant length, which the compiler vectorizes. The tail is
/// staged in a full block.
template <class T, Kind K>
HWY_NOINLINE void reduce_plain(const ReduceCall& call, std::size_t begin, std::size_t end) {
  using W = AccType<T>;
  constexpr std::size_t kBlock = 128;
  W block[kBlock] = {};
  StorageType<T> staged[kBlock] = {};
  const W factor = static_cast<W>(call.factor);
  for (std::size_t i = begin; i < end; i += kBlock) {
    const std::size_t count = end - i < kBlock ? end - i : kBlock;
    for (std::size_t s = 0; s < call.source_count; ++s) {
      const auto* source = reinterpret_cast<const StorageType<T>*>(call.sources[s]) + i;
      // Sources in messages may be misaligned.
      if (count < kBlock || reinterpret_cast<std::uintptr_t>(source) % alignof(StorageType<T>) != 0) {
        __builtin_memcpy(staged, source, count * sizeof(T));
        source = staged;
      }
      if (s == 0)
        for (std::size_t j = 0; j < kBlock; ++j) block[j] = scaled<T>(source[j], factor);
      else
        for (std::size_t j = 0; j < kBlock; ++j) block[j] = combine<K, W>(block[j], scaled<T>(source[j], factor));
    }
    if constexpr (K == Kind::sum) {
      if (call.epilogue != Epilogue::none)
        for (std::size_t j = 0; j < kBlock; ++j) block[j] = divide<W>(block[j], call.divisor);
    }
    for (std::size_t j = 0; j < kBlock; ++j) staged[j] = narrow_plain<T>(block[j]);
    for (std::size_t t = 0; t < call.destination_count; ++t)
      __builtin_memcpy(call.destinations[t] + i * sizeof(T), staged, count * sizeof(T));
  }
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
