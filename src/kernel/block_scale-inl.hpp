// Scale and zero point of a quantized block, computed from its range in one pass.
#if defined(HOOKLINE_BLOCK_SCALE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HOOKLINE_BLOCK_SCALE_INL
#undef HOOKLINE_BLOCK_SCALE_INL
#else
#define HOOKLINE_BLOCK_SCALE_INL
#endif

#include <limits>

#include "kernel/float_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

/// The number of codes processed per step; a multiple of every target's vector length.
inline constexpr std::size_t kGroupSize = 64;

template <int kBits>
inline constexpr float kMaxCodeValue = (1 << kBits) - 1;
/// The zero point of symmetric codes.
template <int kBits>
inline constexpr float kSymmetricZeroPoint = 1 << (kBits - 1);

struct BlockRange {
  float least = 0, greatest = 0;  // affine blocks only; undefined if a value is not finite
  std::uint32_t magnitude = 0;    // bits of the maximum magnitude; they compare like the floats, NaN is largest
};

struct BlockScale {
  float scale = 0, zero_point = 0;
  float inverse = 0;
  bool finite = true;
};

/// Computes the range of a block. With kResidual, first adds the values to `residual` in place and uses the sums. The
/// tail is staged in a full register, padded with the first value.
template <bool kAffine, bool kResidual>
HWY_INLINE BlockRange range_of(const float* values, float* residual, std::size_t count) {
  const Floats d;
  const Words dw;
  const FloatVector first = hn::Set(d, kResidual ? values[0] + residual[0] : values[0]);
  FloatVector least[2] = {first, first}, greatest[2] = {first, first};
  hn::Vec<Words> magnitude[2] = {hn::Zero(dw), hn::Zero(dw)};
  const auto update = [&](FloatVector v, int r) HWY_ATTR {
    magnitude[r] = hn::Max(magnitude[r], hn::And(hn::BitCast(dw, v), hn::Set(dw, 0x7fffffffu)));
    if constexpr (kAffine) {
      least[r] = hn::Min(least[r], v);
      greatest[r] = hn::Max(greatest[r], v);
    }
  };
  const auto sum = [&](std::size_t i) HWY_ATTR {
    FloatVector v = hn::LoadU(d, values + i);
    if constexpr (kResidual) {
      v = hn::Add(v, hn::LoadU(d, residual + i));
      hn::StoreU(v, d, residual + i);
    }
    return v;
  };
  std::size_t i = 0;
  for (; count - i >= 2 * kLanes; i += 2 * kLanes) {
    update(sum(i), 0);
    update(sum(i + kLanes), 1);
  }
  if (count - i >= kLanes) {
    update(sum(i), 0);
    i += kLanes;
  }
  if (i < count) {
    float staged[kLanes];
    hn::StoreU(first, d, staged);
    for (std::size_t j = 0; i + j < count; ++j) {
      staged[j] = kResidual ? values[i + j] + residual[i + j] : values[i + j];
      if constexpr (kResidual) residual[i + j] = staged[j];
    }
    update(hn::LoadU(d, staged), 0);
  }
  BlockRange result;
  result.magnitude = hn::GetLane(hn::MaxOfLanes(dw, hn::Max(magnitude[0], magnitude[1])));
  if constexpr (kAffine) {
    result.least = hn::GetLane(hn::MinOfLanes(d, hn::Min(least[0], least[1])));
    result.greatest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(greatest[0], greatest[1])));
  }
  return result;
}

/// From this magnitude on a decoded value could round beyond the largest float, so scales are reduced by
/// kOverflowMargin.
inline constexpr float kOverflowThreshold = 0x1p127f;
inline constexpr float kOverflowMargin = 1 - 0x1p-22f;

HWY_INLINE float clamp_to_normal(float scale) {
  return scale < std::numeric_limits<float>::min() ? std::numeric_limits<float>::min() : scale;
}

template <int kBits>
HWY_INLINE BlockScale symmetric_scale(float magnitude) {
  if (magnitude == 0) return {.zero_point = kSymmetricZeroPoint<kBits>};
  float scale = clamp_to_normal(magnitude / (kSymmetricZeroPoint<kBits> - 1));
  if (magnitude >= kOverflowThreshold) scale *= kOverflowMargin;
  return {.scale = scale, .zero_point = kSymmetricZeroPoint<kBits>, .inverse = 1 / scale};
}

template <int kBits, bool kStochastic>
HWY_INLINE BlockScale affine_scale(float least, float greatest, float magnitude) {
  if (least == greatest)
    return least == 0 ? BlockScale{} : BlockScale{.scale = least, .zero_point = -1};  // all codes are 0
  if (magnitude >= kOverflowThreshold) {
    const float scale = magnitude / (kMaxCodeValue<kBits> / 2) * kOverflowMargin;
    return {.scale = scale, .zero_point = kMaxCodeValue<kBits> / 2, .inverse = 1 / scale};
  }
  const float scale = clamp_to_normal((greatest - least) / kMaxCodeValue<kBits>);
  const float inverse = 1 / scale;
  // The minimum has code 0. Stochastic rounding keeps a fractional zero point: an integer one would shift values beyond
  // the code range, and clamping them would bias the result.
  float zero = 0.0f - least * inverse;
  if (!kStochastic && least <= 0 && greatest >= 0) {
    zero = (zero + 0x1p23f) - 0x1p23f;
    if (zero > kMaxCodeValue<kBits>) zero = kMaxCodeValue<kBits>;
  }
  return {.scale = scale, .zero_point = zero, .inverse = inverse};
}

template <int kBits, bool kAffine, bool kStochastic>
HWY_INLINE BlockScale scale_of(const BlockRange& range) {
  if (range.magnitude >= 0x7f800000u) return {.scale = std::numeric_limits<float>::quiet_NaN(), .finite = false};
  float magnitude;
  __builtin_memcpy(&magnitude, &range.magnitude, 4);
  if constexpr (kAffine) return affine_scale<kBits, kStochastic>(range.least, range.greatest, magnitude);
  else return symmetric_scale<kBits>(magnitude);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
