// Quantization for each target: per block a range pass, then a coding pass from the cache.
#include "kernel/quantise.hpp"

#include "kernel/quantise_call.hpp"
#include "kernel/versions.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/quantise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/block_scale-inl.hpp"
#include "kernel/nibbles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

/// Adding this to a number of less than 22 bits rounds it to nearest even, with the integer in the low mantissa bits.
inline constexpr float kRounder = 0x1.8p23f;

/// Returns uniform random numbers in (-0.5, 0.5) for consecutive elements from `index`.
HWY_INLINE FloatVector draw(std::uint32_t place, const Draws& draws) {
  const Words dw;
  auto x = hn::Add(hn::Iota(dw, place), hn::Set(dw, draws.key));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(dw, 0x7feb352du));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(dw, draws.second_key));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(dw, 0x846ca68bu));
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  const auto one_to_two = hn::BitCast(Floats(), hn::Or(hn::ShiftRight<9>(x), hn::Set(dw, 0x3f800000u)));
  return hn::Add(hn::Sub(one_to_two, hn::Set(Floats(), 1.5f)), hn::Set(Floats(), 0x1p-24f));
}

/// Quantizes kGroup values; with kError also writes the quantization residuals.
template <int kBits, bool kAffine, bool kStochastic, bool kError>
HWY_INLINE void quantise_group(const float* values, float* error, std::byte* codes, const BlockScale& block,
                               std::uint32_t place, const Draws& draws) {
  const Floats d;
  const hn::Rebind<std::uint8_t, Floats> d8;
  const auto scale = hn::Set(d, block.scale), inverse = hn::Set(d, block.inverse), zero = hn::Set(d, block.zero);
  const auto rounder = hn::Set(d, kAffine ? kRounder : kRounder + kMiddle<kBits>);
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    const FloatVector value = hn::LoadU(d, values + i);
    FloatVector code = hn::Mul(value, inverse);
    if constexpr (kAffine) code = hn::Add(code, zero);
    if constexpr (kStochastic) code = hn::Add(code, draw(place + static_cast<std::uint32_t>(i), draws));
    if constexpr (kAffine) {
      code = hn::Min(hn::Max(code, hn::Zero(d)), hn::Set(d, kGreatestCode<kBits>));
    } else if constexpr (kStochastic) {
      constexpr float kMost = kMiddle<kBits> - 1;
      code = hn::Min(hn::Max(code, hn::Set(d, -kMost)), hn::Set(d, kMost));
    }
    const FloatVector moved = hn::Add(code, rounder);
    const auto bits = hn::And(hn::BitCast(Words(), moved), hn::Set(Words(), 0xffu));
    // Stores codes directly: a staged store and wider reload would stall on store forwarding.
    if constexpr (kBits == 8) hn::StoreU(hn::TruncateTo(d8, bits), d8, reinterpret_cast<std::uint8_t*>(codes + i));
    else store_nibbles(bits, codes, i);
    if constexpr (kError) {
      const FloatVector number = hn::Sub(moved, rounder);  // symmetric: relative to the zero point
      const FloatVector decoded = hn::Mul(kAffine ? hn::Sub(number, zero) : number, scale);
      hn::StoreU(hn::Sub(value, decoded), d, error + i);
    }
  }
}

template <int kBits, bool kAffine, bool kStochastic, bool kError>
HWY_INLINE void quantise_block(const float* values, float* error, std::byte* codes, std::size_t count,
                               const BlockScale& block, std::uint32_t place, const Draws& draws) {
  constexpr std::size_t kPerByte = 8 / kBits;
  std::size_t i = 0;
  for (; count - i >= kGroup; i += kGroup) {
    quantise_group<kBits, kAffine, kStochastic, kError>(values + i, kError ? error + i : nullptr, codes + i / kPerByte,
                                                        block, place + static_cast<std::uint32_t>(i), draws);
  }
  if (i == count) return;
  float staged[kGroup] = {}, lost[kGroup];
  std::byte some[kGroup / kPerByte];
  __builtin_memcpy(staged, values + i, (count - i) * sizeof(float));
  quantise_group<kBits, kAffine, kStochastic, kError>(staged, lost, some, block, place + static_cast<std::uint32_t>(i),
                                                      draws);
  if constexpr (kError) __builtin_memcpy(error + i, lost, (count - i) * sizeof(float));
  if ((count - i) % kPerByte) some[(count - i) / kPerByte] &= std::byte{15};
  __builtin_memcpy(codes + i / kPerByte, some, (count - i + kPerByte - 1) / kPerByte);
}

template <int kBits, bool kAffine, bool kStochastic, bool kError>
HWY_NOINLINE void quantise_all(const QuantiseCall& call) {
  const Draws draws = kStochastic ? *call.draws : Draws{};
  const std::size_t block = call.how.block_of(call.count);
  std::byte* scales = call.scales;
  std::byte* codes = call.codes;
  for (std::size_t i = 0; i < call.count; i += block) {
    const std::size_t count = call.count - i < block ? call.count - i : block;
    const std::size_t bytes = call.how.code_bytes(count);
    float* error = kError ? call.error + i : nullptr;
    const BlockRange range = range_of<kAffine, kError>(call.values + i, error, count);
    const BlockScale found = scale_of<kBits, kAffine, kStochastic>(range);
    __builtin_memcpy(scales, &found.scale, 4);
    if constexpr (kAffine) __builtin_memcpy(scales + 4, &found.zero, 4);
    if (found.finite) {
      const float* values = kError ? error : call.values + i;
      quantise_block<kBits, kAffine, kStochastic, kError>(values, error, codes, count, found,
                                                          draws.first + static_cast<std::uint32_t>(i), draws);
    } else {
      __builtin_memset(codes, 0, bytes);
      if constexpr (kError) __builtin_memset(error, 0, count * sizeof(float));
    }
    scales += kAffine ? 8 : 4;
    codes += bytes;
  }
}

template <int kBits, bool kAffine>
void quantise_as(const QuantiseCall& call) {
  if (call.draws && call.error) return quantise_all<kBits, kAffine, true, true>(call);
  if (call.draws) return quantise_all<kBits, kAffine, true, false>(call);
  if (call.error) return quantise_all<kBits, kAffine, false, true>(call);
  return quantise_all<kBits, kAffine, false, false>(call);
}

void quantise_call(const QuantiseCall& call) {
  if (call.how.bits == 8) call.how.symmetric ? quantise_as<8, false>(call) : quantise_as<8, true>(call);
  else call.how.symmetric ? quantise_as<4, false>(call) : quantise_as<4, true>(call);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

void quantise(const Quantisation& how, const float* values, float* error, std::byte* to, std::size_t count,
              const Draws* draws, Target target) {
  HOOKLINE_VERSION(target, quantise_call)({.how = how,
                                           .values = values,
                                           .error = error,
                                           .scales = to,
                                           .codes = to + how.scale_bytes(count),
                                           .count = count,
                                           .draws = draws});
}

}  // namespace hookline::kernel
#endif
