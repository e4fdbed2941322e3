// The casts, for each target: registers of floats, with the last few elements staged in a whole register.
#include "kernel/cast.hpp"

#include <array>
#include <cstdint>

#include "kernel/cast_kind.hpp"
#include "kernel/versions.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/cast.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/float_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

using Cast = CastKind;

/// One register.
template <Cast C, class T, bool kStream>
HWY_INLINE void cast_lanes(float* floats, std::byte* halves) {
  auto* bytes = reinterpret_cast<std::byte*>(floats);
  if constexpr (C == Cast::narrow) {
    store_floats<T, kStream>(load_floats<float>(bytes), halves);
  } else if constexpr (C == Cast::narrow_keeping_error) {
    const FloatVector v = load_floats<float>(bytes);
    store_floats<T, false>(v, halves);
    const FloatVector error = hn::Sub(v, load_floats<T>(halves));
    store_floats<float, false>(finite_or_zero(error), bytes);
  } else if constexpr (C == Cast::widen) {
    store_floats<float, kStream>(load_floats<T>(halves), bytes);
  } else {
    store_floats<float, false>(canonical(hn::Add(load_floats<float>(bytes), load_floats<T>(halves))), bytes);
  }
}

template <Cast C, class T>
HWY_INLINE void cast_some(float* floats, std::byte* halves, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kLanes) {
    const std::size_t left = count - i < kLanes ? count - i : kLanes;
    float some_floats[kLanes] = {};
    std::byte some_halves[kLanes * sizeof(T)] = {};
    if (C != Cast::widen) __builtin_memcpy(some_floats, floats + i, left * sizeof(float));
    if (C == Cast::widen || C == Cast::widen_add)
      __builtin_memcpy(some_halves, halves + i * sizeof(T), left * sizeof(T));
    cast_lanes<C, T, false>(some_floats, some_halves);
    if (C != Cast::narrow) __builtin_memcpy(floats + i, some_floats, left * sizeof(float));
    if (C == Cast::narrow || C == Cast::narrow_keeping_error)
      __builtin_memcpy(halves + i * sizeof(T), some_halves, left * sizeof(T));
  }
}

template <Cast C, class T, bool kStream>
HWY_INLINE void cast_range(float* floats, std::byte* halves, std::size_t count) {
  constexpr std::size_t kRegisters = 4;
  std::size_t i = 0;
  for (; count - i >= kRegisters * kLanes; i += kRegisters * kLanes) {
    for (std::size_t r = 0; r < kRegisters; ++r) {
      const std::size_t at = i + r * kLanes;
      cast_lanes<C, T, kStream>(floats + at, halves + at * sizeof(T));
    }
  }
  if constexpr (kStream) hwy::FlushStream();
  cast_some<C, T>(floats + i, halves + i * sizeof(T), count - i);
}

template <Cast C, class T>
HWY_NOINLINE void cast_type(float* floats, std::byte* halves, std::size_t count, bool stream) {
  if constexpr (C == Cast::narrow || C == Cast::widen) {
    // Streaming begins with the first whole line of the side that is written.
    constexpr std::size_t kSize = C == Cast::narrow ? sizeof(T) : sizeof(float);
    const auto address =
        C == Cast::narrow ? reinterpret_cast<std::uintptr_t>(halves) : reinterpret_cast<std::uintptr_t>(floats);
    const std::size_t head = (64 - address % 64) % 64 / kSize;
    if (stream && address % kSize == 0 && head < count) {
      cast_some<C, T>(floats, halves, head);
      return cast_range<C, T, true>(floats + head, halves + head * sizeof(T), count - head);
    }
  }
  cast_range<C, T, false>(floats, halves, count);
}

template <class T>
void cast_of(Cast what, float* floats, std::byte* halves, std::size_t count, bool stream) {
  switch (what) {
    case Cast::narrow: return cast_type<Cast::narrow, T>(floats, halves, count, stream);
    case Cast::narrow_keeping_error: return cast_type<Cast::narrow_keeping_error, T>(floats, halves, count, stream);
    case Cast::widen: return cast_type<Cast::widen, T>(floats, halves, count, stream);
    case Cast::widen_add: return cast_type<Cast::widen_add, T>(floats, halves, count, stream);
  }
}

void cast_bytes(Cast what, DType dtype, float* floats, std::byte* halves, std::size_t count, bool stream) {
  if (dtype == DType::f16) cast_of<Float16>(what, floats, halves, count, stream);
  else cast_of<BFloat16>(what, floats, halves, count, stream);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {
namespace {

using Cast = CastKind;

void run(Target target, Cast what, DType dtype, float* floats, std::byte* halves, std::size_t count, Stores stores,
         std::size_t written) {
  const bool stream = stores == Stores::streaming || (stores == Stores::automatic && written >= kStreamFrom);
  static constexpr std::array<decltype(&HWY_STATIC_DISPATCH(cast_bytes)), 3> kVersions =
      HOOKLINE_VERSIONS_OF(cast_bytes);
  kVersions[static_cast<std::size_t>(target)](what, dtype, floats, halves, count, stream);
}

}  // namespace

// The side that a cast only reads loses its const on the way; cast_lanes does not write there.

void narrow(DType dtype, const float* from, std::byte* to, std::size_t count, Stores stores, Target target) {
  run(target, Cast::narrow, dtype, const_cast<float*>(from), to, count, stores, count * 2);
}

void narrow_keeping_error(DType dtype, float* from, std::byte* to, std::size_t count, Target target) {
  run(target, Cast::narrow_keeping_error, dtype, from, to, count, Stores::cached, count * 2);
}

void widen(DType dtype, const std::byte* from, float* to, std::size_t count, Stores stores, Target target) {
  run(target, Cast::widen, dtype, to, const_cast<std::byte*>(from), count, stores, count * 4);
}

void widen_add(DType dtype, const std::byte* from, float* to, std::size_t count, Target target) {
  run(target, Cast::widen_add, dtype, to, const_cast<std::byte*>(from), count, Stores::cached, count * 4);
}

}  // namespace hookline::kernel
#endif
