// Loads and stores of float registers from float32, float16 or bfloat16 memory of any alignment.
#if defined(HOOKLINE_FLOAT_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HOOKLINE_FLOAT_LANES_INL
#undef HOOKLINE_FLOAT_LANES_INL
#else
#define HOOKLINE_FLOAT_LANES_INL
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <hwy/highway.h>

#include <hookline/core/dtype.hpp>

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Targets without vector registers process one float at a time, with the conversions of core.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
using Floats = hn::CappedTag<float, 1>;
inline constexpr std::size_t kLanes = 1;
#else
using Floats = hn::ScalableTag<float>;
inline constexpr std::size_t kLanes = hn::MaxLanes(Floats());
#endif
using FloatVector = hn::Vec<Floats>;
using Words = hn::Rebind<std::uint32_t, Floats>;
using Integers = hn::Rebind<std::int32_t, Floats>;

/// Replaces NaN by the canonical NaN, since sign and payload of a NaN depend on the instruction that produced it.
HWY_INLINE FloatVector canonical(FloatVector v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(Floats(), std::numeric_limits<float>::quiet_NaN()), v);
}

HWY_INLINE FloatVector finite_or_zero(FloatVector v) {
  const auto finite = hn::Lt(hn::Abs(v), hn::Set(Floats(), std::numeric_limits<float>::infinity()));
  return hn::IfThenElseZero(finite, v);
}

/// Loads a register of elements of T as floats. Keeps NaN payloads.
template <class T>
HWY_INLINE FloatVector load_raw(const std::byte* from) {
  const Floats d;
  if constexpr (kLanes == 1) {
    T element;
    __builtin_memcpy(&element, from, sizeof(T));
    return hn::Set(d, static_cast<float>(element));
  } else if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, Floats> dh;
    return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from)));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<std::uint16_t, Floats> dh;
    const auto bits = hn::PromoteTo(Words(), hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(from)));
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  } else {
    return hn::LoadU(d, reinterpret_cast<const float*>(from));
  }
}

/// As above; for 16-bit T, NaN becomes the canonical NaN.
template <class T>
HWY_INLINE FloatVector load_floats(const std::byte* from) {
  if constexpr (std::is_same_v<T, float>) return load_raw<T>(from);
  else return canonical(load_raw<T>(from));
}

/// Rounds float bits to bf16, ties to even, in the upper 16 bits. NaN must be canonical.
template <class D, class V>
HWY_INLINE V round_to_bf16(D du, V bits) {
  const V odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
}

template <bool kStream, class D, class V>
HWY_INLINE void store_lanes(V v, D d, hn::TFromD<D>* to) {
  // Highway's Stream writes at least 16 bytes on SSE2, even for smaller vectors.
  if constexpr (kStream && hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) >= 16) hn::Stream(v, d, to);
  else hn::StoreU(v, d, to);
}

/// Rounds to T, to nearest even, and stores. Streaming requires `to` to be aligned to the number of bytes written.
template <class T, bool kStream>
HWY_INLINE void store_floats(FloatVector v, std::byte* to) {
  const Floats d;
  if constexpr (kLanes == 1) {
    const T element = static_cast<T>(hn::GetLane(std::is_same_v<T, float> ? v : canonical(v)));
    __builtin_memcpy(to, &element, sizeof(T));
  } else if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, Floats> dh;
    const hn::Rebind<std::uint16_t, Floats> du;
    store_lanes<kStream>(hn::BitCast(du, hn::DemoteTo(dh, canonical(v))), du, reinterpret_cast<std::uint16_t*>(to));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Rebind<std::uint16_t, Floats> du;
    const Words dw;
    const auto rounded = round_to_bf16(dw, hn::BitCast(dw, canonical(v)));
    store_lanes<kStream>(hn::TruncateTo(du, hn::ShiftRight<16>(rounded)), du, reinterpret_cast<std::uint16_t*>(to));
  } else {
    store_lanes<kStream>(v, d, reinterpret_cast<float*>(to));
  }
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
