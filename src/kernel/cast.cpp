// Casts for each target. The tail is staged in a full register.
#include "kernel/cast.hpp"

#include <cstdint>

#include "kernel/cast_call.hpp"
#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/cast.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/float_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

using Cast = CastKind;

/// Casts one register.
template <Cast C, class T, bool kStream>
HWY_INLINE void cast_lanes(float* floats, std::byte* halves, const float* values) {
  auto* bytes = reinterpret_cast<std::byte*>(floats);
  if constexpr (C == Cast::narrow) {
    store_floats<T, kStream>(load_floats<float>(bytes), halves);
  } else if constexpr (C == Cast::narrow_with_residual) {
    const FloatVector sum = hn::Add(hn::LoadU(Floats(), values), load_floats<float>(bytes));
    store_floats<T, false>(sum, halves);
    store_floats<float, false>(finite_or_zero(hn::Sub(sum, load_floats<T>(halves))), bytes);
  } else if constexpr (C == Cast::widen) {
    store_floats<float, kStream>(load_floats<T>(halves), bytes);
  } else {
    store_floats<float, false>(canonical(hn::Add(load_floats<float>(bytes), load_floats<T>(halves))), bytes);
  }
}

/// Casts a range of any length, staged in full registers.
template <Cast C, class T>
HWY_INLINE void cast_tail(const CastCall& call, std::size_t begin, std::size_t end) {
  constexpr bool kNarrow = C == Cast::narrow || C == Cast::narrow_with_residual;
  for (std::size_t i = begin; i < end; i += kLanes) {
    const std::size_t count = end - i < kLanes ? end - i : kLanes;
    float floats[kLanes] = {}, values[kLanes] = {};
    std::byte halves[kLanes * sizeof(T)] = {};
    if (C != Cast::widen) __builtin_memcpy(floats, call.floats + i, count * sizeof(float));
    if (C == Cast::narrow_with_residual) __builtin_memcpy(values, call.values + i, count * sizeof(float));
    if (!kNarrow) __builtin_memcpy(halves, call.halves + i * sizeof(T), count * sizeof(T));
    cast_lanes<C, T, false>(floats, halves, values);
    if (C != Cast::narrow) __builtin_memcpy(call.floats + i, floats, count * sizeof(float));
    if (kNarrow) __builtin_memcpy(call.halves + i * sizeof(T), halves, count * sizeof(T));
  }
}

template <Cast C, class T, bool kStream>
HWY_INLINE void cast_from(const CastCall& call, std::size_t begin) {
  constexpr std::size_t kRegisters = 4;
  std::size_t i = begin;
  for (; call.count - i >= kRegisters * kLanes; i += kRegisters * kLanes) {
    for (std::size_t r = 0; r < kRegisters; ++r) {
      const std::size_t offset = i + r * kLanes;
      cast_lanes<C, T, kStream>(call.floats + offset, call.halves + offset * sizeof(T),
                                C == Cast::narrow_with_residual ? call.values + offset : nullptr);
    }
  }
  if constexpr (kStream) hwy::FlushStream();
  cast_tail<C, T>(call, i, call.count);
}

template <Cast C, class T>
HWY_NOINLINE void cast_all(const CastCall& call) {
  if constexpr (C == Cast::narrow || C == Cast::widen) {
    // Streaming starts on the first cache-line boundary of the output.
    constexpr std::size_t kSize = C == Cast::narrow ? sizeof(T) : sizeof(float);
    const auto address = C == Cast::narrow ? reinterpret_cast<std::uintptr_t>(call.halves)
                                           : reinterpret_cast<std::uintptr_t>(call.floats);
    const std::size_t head = (64 - address % 64) % 64 / kSize;
    if (call.stream && address % kSize == 0 && head < call.count) {
      cast_tail<C, T>(call, 0, head);
      return cast_from<C, T, true>(call, head);
    }
  }
  cast_from<C, T, false>(call, 0);
}

template <class T>
HWY_INLINE void add_lanes(const std::byte* first, const std::byte* second, FloatVector factor, float* to) {
  const FloatVector sum = hn::Add(load_raw<T>(first), load_raw<T>(second));
  hn::StoreU(canonical(hn::Mul(sum, factor)), Floats(), to);
}

template <class T>
HWY_NOINLINE void widen_sum_two(const CastCall& call) {
  constexpr std::size_t kBlock = 4 * kLanes;
  const FloatVector factor = hn::Set(Floats(), call.factor);
  std::size_t i = 0;
  for (; call.count - i >= kBlock; i += kBlock) {
    for (std::size_t offset = i; offset < i + kBlock; offset += kLanes)
      add_lanes<T>(call.halves + offset * sizeof(T), call.second + offset * sizeof(T), factor, call.floats + offset);
  }
  for (; i < call.count; i += kLanes) {
    const std::size_t count = call.count - i < kLanes ? call.count - i : kLanes;
    std::byte halves[2][kLanes * sizeof(T)] = {};
    float sum[kLanes];
    __builtin_memcpy(halves[0], call.halves + i * sizeof(T), count * sizeof(T));
    __builtin_memcpy(halves[1], call.second + i * sizeof(T), count * sizeof(T));
    add_lanes<T>(halves[0], halves[1], factor, sum);
    __builtin_memcpy(call.floats + i, sum, count * sizeof(float));
  }
}

template <class T>
void cast_type(const CastCall& call) {
  switch (call.kind) {
    case Cast::narrow: return cast_all<Cast::narrow, T>(call);
    case Cast::narrow_with_residual: return cast_all<Cast::narrow_with_residual, T>(call);
    case Cast::widen: return cast_all<Cast::widen, T>(call);
    case Cast::widen_add: return cast_all<Cast::widen_add, T>(call);
    case Cast::widen_sum_two: return widen_sum_two<T>(call);
  }
}

void cast_call(const CastCall& call) {
  if (call.dtype == DType::f16) cast_type<Float16>(call);
  else cast_type<BFloat16>(call);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {
namespace {

void run(Target target, const CastCall& call) { HOOKLINE_DISPATCH(target, cast_call)(call); }

}  // namespace

void narrow(DType dtype, const float* from, std::byte* to, std::size_t count, StoreMode store_mode, Target target) {
  run(target,
      {CastKind::narrow, dtype, const_cast<float*>(from), to, nullptr, count, should_stream(store_mode, count * 2)});
}

void narrow_with_residual(DType dtype, const float* from, float* residual, std::byte* to, std::size_t count,
                          Target target) {
  run(target, {CastKind::narrow_with_residual, dtype, residual, to, from, count, false});
}

void widen(DType dtype, const std::byte* from, float* to, std::size_t count, StoreMode store_mode, Target target) {
  run(target,
      {CastKind::widen, dtype, to, const_cast<std::byte*>(from), nullptr, count, should_stream(store_mode, count * 4)});
}

void widen_add(DType dtype, const std::byte* from, float* to, std::size_t count, Target target) {
  run(target, {CastKind::widen_add, dtype, to, const_cast<std::byte*>(from), nullptr, count, false});
}

void widen_sum_two(DType dtype, const std::byte* first, const std::byte* second, float factor, float* to,
                   std::size_t count, Target target) {
  run(target,
      {CastKind::widen_sum_two, dtype, to, const_cast<std::byte*>(first), nullptr, count, false, second, factor});
}

}  // namespace hookline::kernel
#endif
