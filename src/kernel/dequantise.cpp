// The way back from codes to values, for each target.
#include <cstdint>

#include "kernel/quantise.hpp"
#include "kernel/quantise_call.hpp"
#include "kernel/versions.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/dequantise.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/block_scale-inl.hpp"
#include "kernel/nibbles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

enum class Into : std::uint8_t { cache, memory, sum };

template <Into kInto>
HWY_INLINE void dequantise_group(const std::uint8_t* codes, float* values, float scale, float zero) {
  const Floats d;
  const hn::Rebind<std::uint8_t, Floats> d8;
  const auto scales = hn::Set(d, scale), zeros = hn::Set(d, zero);
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    const auto code = hn::ConvertTo(d, hn::PromoteTo(Integers(), hn::LoadU(d8, codes + i)));
    const auto value = hn::Mul(hn::Sub(code, zeros), scales);
    if constexpr (kInto == Into::sum) hn::StoreU(canonical(hn::Add(hn::LoadU(d, values + i), value)), d, values + i);
    else put_lanes<kInto == Into::memory>(value, d, values + i);
  }
}

template <int kBits, Into kInto>
HWY_INLINE void dequantise_block(const std::byte* codes, float* values, std::size_t count, float scale, float zero) {
  constexpr std::size_t kPerByte = 8 / kBits;
  std::uint8_t some[kGroup] = {};
  std::size_t i = 0;
  for (; count - i >= kGroup; i += kGroup) {
    if constexpr (kBits == 8) {
      dequantise_group<kInto>(reinterpret_cast<const std::uint8_t*>(codes + i), values + i, scale, zero);
    } else {
      unpack_nibbles(codes + i / kPerByte, some);
      dequantise_group<kInto>(some, values + i, scale, zero);
    }
  }
  if (i == count) return;
  const std::size_t bytes = (count - i + kPerByte - 1) / kPerByte;
  if constexpr (kBits == 8) {
    __builtin_memcpy(some, codes + i, bytes);
  } else {
    std::byte packed[kGroup / 2] = {};
    __builtin_memcpy(packed, codes + i / kPerByte, bytes);
    unpack_nibbles(packed, some);
  }
  float staged[kGroup] = {};
  if constexpr (kInto == Into::sum) __builtin_memcpy(staged, values + i, (count - i) * sizeof(float));
  dequantise_group<kInto == Into::sum ? Into::sum : Into::cache>(some, staged, scale, zero);
  __builtin_memcpy(values + i, staged, (count - i) * sizeof(float));
}

template <int kBits, bool kAffine, Into kInto>
HWY_NOINLINE void dequantise_all(const DequantiseCall& call) {
  const std::size_t block = call.how.block_of(call.count);
  const std::byte* scales = call.scales;
  const std::byte* codes = call.codes;
  for (std::size_t i = 0; i < call.count; i += block) {
    const std::size_t count = call.count - i < block ? call.count - i : block;
    float scale, zero = kMiddle<kBits>;
    __builtin_memcpy(&scale, scales, 4);
    if constexpr (kAffine) __builtin_memcpy(&zero, scales + 4, 4);
    dequantise_block<kBits, kInto>(codes, call.values + i, count, scale, zero);
    scales += kAffine ? 8 : 4;
    codes += call.how.code_bytes(count);
  }
  if constexpr (kInto == Into::memory) hwy::FlushStream();
}

template <int kBits, bool kAffine>
void dequantise_as(const DequantiseCall& call) {
  if (call.add) return dequantise_all<kBits, kAffine, Into::sum>(call);
  if (call.stream) return dequantise_all<kBits, kAffine, Into::memory>(call);
  return dequantise_all<kBits, kAffine, Into::cache>(call);
}

void dequantise_call(const DequantiseCall& call) {
  if (call.how.bits == 8) call.how.symmetric ? dequantise_as<8, false>(call) : dequantise_as<8, true>(call);
  else call.how.symmetric ? dequantise_as<4, false>(call) : dequantise_as<4, true>(call);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {
namespace {

void run(const Quantisation& how, const std::byte* from, float* to, std::size_t count, bool add, bool stream,
         Target target) {
  HOOKLINE_VERSION(target, dequantise_call)({.how = how,
                                             .scales = from,
                                             .codes = from + how.scale_bytes(count),
                                             .values = to,
                                             .count = count,
                                             .add = add,
                                             .stream = stream});
}

}  // namespace

void dequantise(const Quantisation& how, const std::byte* from, float* to, std::size_t count, Stores stores,
                Target target) {
  // Streaming needs every group to begin with a line.
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(to) % 64 == 0 && (how.block_of(count) == count || how.block % 16 == 0);
  run(how, from, to, count, false, aligned && streams(stores, count * sizeof(float)), target);
}

void dequantise_add(const Quantisation& how, const std::byte* from, float* to, std::size_t count, Target target) {
  run(how, from, to, count, true, false, target);
}

}  // namespace hookline::kernel
#endif
