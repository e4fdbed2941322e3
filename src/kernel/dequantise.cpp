// Dequantization for each target.
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

struct CodedBlock {
  const std::byte* codes;
  float scale;
  float zero;
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
  return hn::Mul(hn::Sub(hn::ConvertTo(d, code), hn::Set(d, block.zero)), hn::Set(d, block.scale));
}

/// Decodes kGroup values, starting with index `i` of the block; with kTwo the scaled sum of two blocks.
template <int kBits, Into kInto, bool kTwo>
HWY_INLINE void dequantise_group(const CodedBlock& block, const CodedBlock& second, float factor, std::size_t i,
                                 float* values) {
  const Floats d;
  for (std::size_t j = 0; j < kGroup; j += kLanes) {
    FloatVector value = decoded<kBits>(block, i + j);
    if constexpr (kTwo) value = canonical(hn::Mul(hn::Add(value, decoded<kBits>(second, i + j)), hn::Set(d, factor)));
    if constexpr (kInto == Into::sum) value = canonical(hn::Add(hn::LoadU(d, values + j), value));
    put_lanes<kInto == Into::memory>(value, d, values + j);
  }
}

template <int kBits, Into kInto, bool kTwo>
HWY_INLINE void dequantise_block(const CodedBlock& block, const CodedBlock& second, float factor, std::size_t count,
                                 float* values) {
  std::size_t i = 0;
  for (; count - i >= kGroup; i += kGroup) dequantise_group<kBits, kInto, kTwo>(block, second, factor, i, values + i);
  if (i == count) return;
  constexpr std::size_t kPerByte = 8 / kBits;
  std::byte some[2][kGroup / kPerByte] = {};
  const auto staged = [&](const CodedBlock& whole, std::byte* codes) HWY_ATTR {
    __builtin_memcpy(codes, whole.codes + i / kPerByte, (count - i + kPerByte - 1) / kPerByte);
    return CodedBlock{codes, whole.scale, whole.zero};
  };
  float last[kGroup] = {};
  if constexpr (kInto == Into::sum) __builtin_memcpy(last, values + i, (count - i) * sizeof(float));
  dequantise_group<kBits, kInto == Into::sum ? Into::sum : Into::cache, kTwo>(
      staged(block, some[0]), kTwo ? staged(second, some[1]) : second, factor, 0, last);
  __builtin_memcpy(values + i, last, (count - i) * sizeof(float));
}

template <int kBits, bool kAffine>
HWY_INLINE CodedBlock block_at(const std::byte* scales, const std::byte* codes) {
  CodedBlock block{.codes = codes, .scale = 0, .zero = kMiddle<kBits>};
  __builtin_memcpy(&block.scale, scales, 4);
  if constexpr (kAffine) __builtin_memcpy(&block.zero, scales + 4, 4);
  return block;
}

template <int kBits, bool kAffine, Into kInto, bool kTwo>
HWY_NOINLINE void dequantise_all(const DequantiseCall& call) {
  const std::size_t block = call.how.block_of(call.count);
  std::size_t scale = 0, code = 0;  // offsets of the current block
  for (std::size_t i = 0; i < call.count; i += block) {
    const std::size_t count = call.count - i < block ? call.count - i : block;
    const auto first = block_at<kBits, kAffine>(call.scales + scale, call.codes + code);
    const auto second = kTwo ? block_at<kBits, kAffine>(call.second_scales + scale, call.second_codes + code) : first;
    dequantise_block<kBits, kInto, kTwo>(first, second, call.factor, count, call.values + i);
    scale += kAffine ? 8 : 4;
    code += call.how.code_bytes(count);
  }
  if constexpr (kInto == Into::memory) hwy::FlushStream();
}

template <int kBits, bool kAffine>
void dequantise_as(const DequantiseCall& call) {
  const bool two = call.second_scales != nullptr;
  if (call.add) return dequantise_all<kBits, kAffine, Into::sum, false>(call);
  if (call.stream && two) return dequantise_all<kBits, kAffine, Into::memory, true>(call);
  if (call.stream) return dequantise_all<kBits, kAffine, Into::memory, false>(call);
  if (two) return dequantise_all<kBits, kAffine, Into::cache, true>(call);
  return dequantise_all<kBits, kAffine, Into::cache, false>(call);
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

void run(Target target, const DequantiseCall& call) { HOOKLINE_VERSION(target, dequantise_call)(call); }

// Streaming requires every group to start on a cache line.
bool may_stream(const Quantisation& how, const float* to, std::size_t count, Stores stores) {
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(to) % 64 == 0 && (how.block_of(count) == count || how.block % 16 == 0);
  return aligned && streams(stores, count * sizeof(float));
}

DequantiseCall call_of(const Quantisation& how, const std::byte* from, float* to, std::size_t count) {
  return {.how = how, .scales = from, .codes = from + how.scale_bytes(count), .values = to, .count = count};
}

}  // namespace

void dequantise(const Quantisation& how, const std::byte* from, float* to, std::size_t count, Stores stores,
                Target target) {
  DequantiseCall call = call_of(how, from, to, count);
  call.stream = may_stream(how, to, count, stores);
  run(target, call);
}

void dequantise_add(const Quantisation& how, const std::byte* from, float* to, std::size_t count, Target target) {
  DequantiseCall call = call_of(how, from, to, count);
  call.add = true;
  run(target, call);
}

void dequantise_two(const Quantisation& how, const std::byte* first, const std::byte* second, float factor, float* to,
                    std::size_t count, Stores stores, Target target) {
  DequantiseCall call = call_of(how, first, to, count);
  call.second_scales = second;
  call.second_codes = second + how.scale_bytes(count);
  call.factor = factor;
  call.stream = may_stream(how, to, count, stores);
  run(target, call);
}

}  // namespace hookline::kernel
#endif
