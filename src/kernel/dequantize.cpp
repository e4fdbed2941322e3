// Dequantization for each target.
#include <cstdint>

#include "kernel/quantize.hpp"
#include "kernel/quantize_call.hpp"
#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/dequantize.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/block_scale-inl.hpp"
#include "kernel/nibbles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

enum class Output : std::uint8_t { cached, streamed, accumulated };

struct CodedBlock {
  const std::byte* codes;
  float scale;
  float zero_point;
};

/// Decodes a register of codes, starting with index `i` of the block.
template <int kBits>
HWY_INLINE FloatVector decoded(const CodedBlock& block, std::size_t i) {
  const Floats d;
  hn::Vec<Integers> code;
  if constexpr (kBits == 8) {
    const hn::Rebind<std::uint8_t, Floats> d8;
    code = hn::PromoteTo(Integers(), hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(block.codes + i)));
  } else {
    code = load_nibbles(block.codes, i);
  }
  return hn::Mul(hn::Sub(hn::ConvertTo(d, code), hn::Set(d, block.zero_point)), hn::Set(d, block.scale));
}

/// Decodes kGroupSize values, starting with index `i` of the block; with kTwo the scaled sum of two blocks.
template <int kBits, Output kOutput, bool kTwo>
HWY_INLINE void dequantize_group(const CodedBlock& block, const CodedBlock& second, float factor, std::size_t i,
                                 float* values) {
  const Floats d;
  for (std::size_t j = 0; j < kGroupSize; j += kLanes) {
    FloatVector value = decoded<kBits>(block, i + j);
    if constexpr (kTwo) value = canonical(hn::Mul(hn::Add(value, decoded<kBits>(second, i + j)), hn::Set(d, factor)));
    if constexpr (kOutput == Output::accumulated) value = canonical(hn::Add(hn::LoadU(d, values + j), value));
    store_lanes<kOutput == Output::streamed>(value, d, values + j);
  }
}

template <int kBits, Output kOutput, bool kTwo>
HWY_INLINE void dequantize_block(const CodedBlock& block, const CodedBlock& second, float factor, std::size_t count,
                                 float* values) {
  std::size_t i = 0;
  for (; count - i >= kGroupSize; i += kGroupSize)
    dequantize_group<kBits, kOutput, kTwo>(block, second, factor, i, values + i);
  if (i == count) return;
  constexpr std::size_t kPerByte = 8 / kBits;
  std::byte tail_codes[2][kGroupSize / kPerByte] = {};
  const auto staged = [&](const CodedBlock& whole, std::byte* codes) HWY_ATTR {
    __builtin_memcpy(codes, whole.codes + i / kPerByte, (count - i + kPerByte - 1) / kPerByte);
    return CodedBlock{codes, whole.scale, whole.zero_point};
  };
  float tail_values[kGroupSize] = {};
  if constexpr (kOutput == Output::accumulated) __builtin_memcpy(tail_values, values + i, (count - i) * sizeof(float));
  dequantize_group<kBits, kOutput == Output::accumulated ? Output::accumulated : Output::cached, kTwo>(
      staged(block, tail_codes[0]), kTwo ? staged(second, tail_codes[1]) : second, factor, 0, tail_values);
  __builtin_memcpy(values + i, tail_values, (count - i) * sizeof(float));
}

template <int kBits, bool kAffine>
HWY_INLINE CodedBlock block_at(const std::byte* scales, const std::byte* codes) {
  CodedBlock block{.codes = codes, .scale = 0, .zero_point = kSymmetricZeroPoint<kBits>};
  __builtin_memcpy(&block.scale, scales, 4);
  if constexpr (kAffine) __builtin_memcpy(&block.zero_point, scales + 4, 4);
  return block;
}

template <int kBits, bool kAffine, Output kOutput, bool kTwo>
HWY_NOINLINE void dequantize_all(const DequantizeCall& call) {
  const std::size_t block = call.params.block_of(call.count);
  std::size_t scale = 0, code = 0;  // offsets of the current block
  for (std::size_t i = 0; i < call.count; i += block) {
    const std::size_t count = call.count - i < block ? call.count - i : block;
    const auto first = block_at<kBits, kAffine>(call.scales + scale, call.codes + code);
    const auto second = kTwo ? block_at<kBits, kAffine>(call.second_scales + scale, call.second_codes + code) : first;
    dequantize_block<kBits, kOutput, kTwo>(first, second, call.factor, count, call.values + i);
    scale += kAffine ? 8 : 4;
    code += call.params.code_bytes(count);
  }
  if constexpr (kOutput == Output::streamed) hwy::FlushStream();
}

template <int kBits, bool kAffine>
void dequantize_as(const DequantizeCall& call) {
  const bool two = call.second_scales != nullptr;
  if (call.add) return dequantize_all<kBits, kAffine, Output::accumulated, false>(call);
  if (call.stream && two) return dequantize_all<kBits, kAffine, Output::streamed, true>(call);
  if (call.stream) return dequantize_all<kBits, kAffine, Output::streamed, false>(call);
  if (two) return dequantize_all<kBits, kAffine, Output::cached, true>(call);
  return dequantize_all<kBits, kAffine, Output::cached, false>(call);
}

void dequantize_call(const DequantizeCall& call) {
  if (call.params.bits == 8) call.params.symmetric ? dequantize_as<8, false>(call) : dequantize_as<8, true>(call);
  else call.params.symmetric ? dequantize_as<4, false>(call) : dequantize_as<4, true>(call);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {
namespace {

void run(Target target, const DequantizeCall& call) { HOOKLINE_DISPATCH(target, dequantize_call)(call); }

// Streaming requires every group to start on a cache line.
bool may_stream(const QuantizationParams& params, const float* to, std::size_t count, StoreMode store_mode) {
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(to) % 64 == 0 && (params.block_of(count) == count || params.block % 16 == 0);
  return aligned && should_stream(store_mode, count * sizeof(float));
}

DequantizeCall make_call(const QuantizationParams& params, const std::byte* from, float* to, std::size_t count) {
  return {.params = params, .scales = from, .codes = from + params.scale_bytes(count), .values = to, .count = count};
}

}  // namespace

void dequantize(const QuantizationParams& params, const std::byte* from, float* to, std::size_t count,
                StoreMode store_mode, Target target) {
  DequantizeCall call = make_call(params, from, to, count);
  call.stream = may_stream(params, to, count, store_mode);
  run(target, call);
}

void dequantize_add(const QuantizationParams& params, const std::byte* from, float* to, std::size_t count,
                    Target target) {
  DequantizeCall call = make_call(params, from, to, count);
  call.add = true;
  run(target, call);
}

void dequantize_sum_two(const QuantizationParams& params, const std::byte* first, const std::byte* second, float factor,
                        float* to, std::size_t count, StoreMode store_mode, Target target) {
  DequantizeCall call = make_call(params, first, to, count);
  call.second_scales = second;
  call.second_codes = second + params.scale_bytes(count);
  call.factor = factor;
  call.stream = may_stream(params, to, count, store_mode);
  run(target, call);
}

}  // namespace hookline::kernel
#endif
