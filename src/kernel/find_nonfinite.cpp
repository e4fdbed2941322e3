// Search for NaN and infinities for each target: exponents with all bits set.
#include "kernel/find_nonfinite.hpp"

#include <cstdint>

#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/find_nonfinite.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

/// Tests whole blocks, in loops of constant length that compilers vectorize.
template <class Bits>
HWY_NOINLINE std::size_t find_exponent(const std::byte* data, std::size_t count, Bits exponent) {
  constexpr std::size_t kBlock = 1024;
  const auto* x = reinterpret_cast<const Bits*>(data);
  std::size_t i = 0;
  for (; count - i >= kBlock; i += kBlock) {
    Bits any = 0;
    for (std::size_t j = 0; j < kBlock; ++j) any |= static_cast<Bits>((x[i + j] & exponent) == exponent);
    if (any) break;
  }
  while (i < count && (x[i] & exponent) != exponent) ++i;
  return i;
}

std::size_t find_nonfinite_of(DType dtype, const std::byte* data, std::size_t count) {
  switch (dtype) {
    case DType::f64: return find_exponent<std::uint64_t>(data, count, 0x7ff0000000000000u);
    case DType::f32: return find_exponent<std::uint32_t>(data, count, 0x7f800000u);
    case DType::f16: return find_exponent<std::uint16_t>(data, count, 0x7c00u);
    case DType::bf16: return find_exponent<std::uint16_t>(data, count, 0x7f80u);
    default: return count;
  }
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

std::size_t find_nonfinite(DType dtype, const std::byte* data, std::size_t count, Target target) {
  return HOOKLINE_DISPATCH(target, find_nonfinite_of)(dtype, data, count);
}

}  // namespace hookline::kernel
#endif
