// Quantization for each target: per block a range pass, then a coding pass from the cache.
#include "kernel/quantize.hpp"

#include "kernel/quantize_call.hpp"
#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/quantize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/block_scale-inl.hpp"
#include "kernel/nibbles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

/// Adding this to a number of less than 22 bits rounds it to nearest even, with the integer in the low mantissa bits.
inline constexpr float kRoundingConstant = 0x1.8p23f;

/// Returns uniform random numbers in (-0.5, 0.5) for consecutive elements from `index`.
HWY_INLINE FloatVector uniform_offset(std::uint32_t index, const CounterRng& rng) {
  const Words dw;
  auto x = hn::Add(hn::Iota(dw, index), hn::Set(dw, rng.key));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(dw, 0x7feb352du));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(dw, rng.second_key));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(dw, 0x846ca68bu));
  x = hn::Xor(x, hn::ShiftRight<16>(x));
  const auto one_to_two = hn::BitCast(Floats(), hn::Or(hn::ShiftRight<9>(x), hn::Set(dw, 0x3f800000u)));
  return hn::Add(hn::Sub(one_to_two, hn::Set(Floats(), 1.5f)), hn::Set(Floats(), 0x1p-24f));
}

/// Quantizes kGroupSize values; with kResidual also writes the quantization residuals.
template <int kBits, bool kAffine, bool kStochastic, bool kResidual>
HWY_INLINE void quantize_group(const float* values, float* residual, std::byte* codes, const BlockScale& block,
                               std::uint32_t index, const CounterRng& rng) {
  const Floats d;
  const hn::Rebind<std::uint8_t, Floats> d8;
  const auto scale = hn::Set(d, block.scale), inverse = hn::Set(d, block.inverse), zero = hn::Set(d, block.zero_point);
  const auto rounding_constant =
      hn::Set(d, kAffine ? kRoundingConstant : kRoundingConstant + kSymmetricZeroPoint<kBits>);
  for (std::size_t i = 0; i < kGroupSize; i += kLanes) {
    const FloatVector value = hn::LoadU(d, values + i);
    FloatVector code = hn::Mul(value, inverse);
    if constexpr (kAffine) code = hn::Add(code, zero);
    if constexpr (kStochastic) code = hn::Add(code, uniform_offset(index + static_cast<std::uint32_t>(i), rng));
    if constexpr (kAffine) {
      code = hn::Min(hn::Max(code, hn::Zero(d)), hn::Set(d, kMaxCodeValue<kBits>));
    } else if constexpr (kStochastic) {
      constexpr float kMaxCode = kSymmetricZeroPoint<kBits> - 1;
      code = hn::Min(hn::Max(code, hn::Set(d, -kMaxCode)), hn::Set(d, kMaxCode));
    }
    const FloatVector moved = hn::Add(code, rounding_constant);
    const auto bits = hn::And(hn::BitCast(Words(), moved), hn::Set(Words(), 0xffu));
    // Stores codes directly: a staged store and wider reload would stall on store forwarding.
    if constexpr (kBits == 8) hn::StoreU(hn::TruncateTo(d8, bits), d8, reinterpret_cast<std::uint8_t*>(codes + i));
    else store_nibbles(bits, codes, i);
    if constexpr (kResidual) {
      const FloatVector number = hn::Sub(moved, rounding_constant);  // symmetric: relative to the zero point
      const FloatVector decoded = hn::Mul(kAffine ? hn::Sub(number, zero) : number, scale);
      hn::StoreU(hn::Sub(value, decoded), d, residual + i);
    }
  }
}

template <int kBits, bool kAffine, bool kStochastic, bool kResidual>
HWY_INLINE void quantize_block(const float* values, float* residual, std::byte* codes, std::size_t count,
                               const BlockScale& block, std::uint32_t index, const CounterRng& rng) {
  constexpr std::size_t kPerByte = 8 / kBits;
  std::size_t i = 0;
  for (; count - i >= kGroupSize; i += kGroupSize) {
    quantize_group<kBits, kAffine, kStochastic, kResidual>(values + i, kResidual ? residual + i : nullptr,
                                                           codes + i / kPerByte, block,
                                                           index + static_cast<std::uint32_t>(i), rng);
  }
  if (i == count) return;
  float staged[kGroupSize] = {}, tail_residual[kGroupSize];
  std::byte tail_codes[kGroupSize / kPerByte];
  __builtin_memcpy(staged, values + i, (count - i) * sizeof(float));
  quantize_group<kBits, kAffine, kStochastic, kResidual>(staged, tail_residual, tail_codes, block,
                                                         index + static_cast<std::uint32_t>(i), rng);
  if constexpr (kResidual) __builtin_memcpy(residual + i, tail_residual, (count - i) * sizeof(float));
  if ((count - i) % kPerByte) tail_codes[(count - i) / kPerByte] &= std::byte{15};
  __builtin_memcpy(codes + i / kPerByte, tail_codes, (count - i + kPerByte - 1) / kPerByte);
}

template <int kBits, bool kAffine, bool kStochastic, bool kResidual>
HWY_NOINLINE void quantize_all(const QuantizeCall& call) {
  const CounterRng rng = kStochastic ? *call.rng : CounterRng{};
  const std::size_t block = call.params.block_of(call.count);
  std::byte* scales = call.scales;
  std::byte* codes = call.codes;
  for (std::size_t i = 0; i < call.count; i += block) {
    const std::size_t count = call.count - i < block ? call.count - i : block;
    const std::size_t bytes = call.params.code_bytes(count);
    float* residual = kResidual ? call.residual + i : nullptr;
    const BlockRange range = range_of<kAffine, kResidual>(call.values + i, residual, count);
    const BlockScale scale = scale_of<kBits, kAffine, kStochastic>(range);
    __builtin_memcpy(scales, &scale.scale, 4);
    if constexpr (kAffine) __builtin_memcpy(scales + 4, &scale.zero_point, 4);
    if (scale.finite) {
      const float* values = kResidual ? residual : call.values + i;
      quantize_block<kBits, kAffine, kStochastic, kResidual>(values, residual, codes, count, scale,
                                                             rng.first_index + static_cast<std::uint32_t>(i), rng);
    } else {
      __builtin_memset(codes, 0, bytes);
      if constexpr (kResidual) __builtin_memset(residual, 0, count * sizeof(float));
    }
    scales += kAffine ? 8 : 4;
    codes += bytes;
  }
}

template <int kBits, bool kAffine>
void quantize_as(const QuantizeCall& call) {
  if (call.rng && call.residual) return quantize_all<kBits, kAffine, true, true>(call);
  if (call.rng) return quantize_all<kBits, kAffine, true, false>(call);
  if (call.residual) return quantize_all<kBits, kAffine, false, true>(call);
  return quantize_all<kBits, kAffine, false, false>(call);
}

void quantize_call(const QuantizeCall& call) {
  if (call.params.bits == 8) call.params.symmetric ? quantize_as<8, false>(call) : quantize_as<8, true>(call);
  else call.params.symmetric ? quantize_as<4, false>(call) : quantize_as<4, true>(call);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

void quantize(const QuantizationParams& params, const float* values, float* residual, std::byte* to, std::size_t count,
              const CounterRng* rng, Target target) {
  HOOKLINE_DISPATCH(target, quantize_call)({.params = params,
                                            .values = values,
                                            .residual = residual,
                                            .scales = to,
                                            .codes = to + params.scale_bytes(count),
                                            .count = count,
                                            .rng = rng});
}

}  // namespace hookline::kernel
#endif
