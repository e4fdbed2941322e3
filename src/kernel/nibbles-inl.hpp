// Packing and unpacking of 4-bit codes, two per byte, the first in the low nibble.
#if defined(HOOKLINE_NIBBLES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HOOKLINE_NIBBLES_INL
#undef HOOKLINE_NIBBLES_INL
#else
#define HOOKLINE_NIBBLES_INL
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernel/float_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

/// Stores one code at index `i`. The even code of a byte must be stored first.
HWY_INLINE void store_nibbles(hn::Vec<Words> code, std::byte* to, std::size_t i) {
  const auto bits = static_cast<std::byte>(hn::GetLane(code));
  to[i / 2] = i % 2 ? to[i / 2] | bits << 4 : bits;
}

HWY_INLINE hn::Vec<Integers> load_nibbles(const std::byte* from, std::size_t i) {
  return hn::Set(Integers(), static_cast<std::int32_t>(i % 2 ? from[i / 2] >> 4 : from[i / 2] & std::byte{15}));
}

#else

static_assert(std::endian::native == std::endian::little, "the first code of a pair must be in the low half of a word");

/// Two codes per 64-bit word, one in each half.
using Pairs = hn::Repartition<std::uint64_t, Floats>;
using PairBytes = hn::Rebind<std::uint8_t, Pairs>;

/// Stores a register of codes below 16 at the even index `i`.
HWY_INLINE void store_nibbles(hn::Vec<Words> codes, std::byte* to, std::size_t i) {
  const PairBytes d8;
  const auto pairs = hn::BitCast(Pairs(), codes);
  const auto bytes = hn::TruncateTo(d8, hn::Or(pairs, hn::ShiftRight<28>(pairs)));
  hn::StoreU(bytes, d8, reinterpret_cast<std::uint8_t*>(to + i / 2));
}

/// Loads a register of codes from the even index `i`.
HWY_INLINE hn::Vec<Integers> load_nibbles(const std::byte* from, std::size_t i) {
  const hn::Rebind<std::uint32_t, Pairs> d32;
  const auto bytes = hn::LoadU(PairBytes(), reinterpret_cast<const std::uint8_t*>(from + i / 2));
  const auto both = hn::PromoteTo(Pairs(), hn::PromoteTo(d32, bytes));
  const auto pairs = hn::And(hn::Or(both, hn::ShiftLeft<28>(both)), hn::Set(Pairs(), 0x0000000f0000000fu));
  return hn::BitCast(Integers(), pairs);
}

#endif

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
