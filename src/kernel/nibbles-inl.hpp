// Codes of 4 bits, two in a byte: packed and unpacked by words, which compilers turn into vectors.
#if defined(HOOKLINE_NIBBLES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HOOKLINE_NIBBLES_INL
#undef HOOKLINE_NIBBLES_INL
#else
#define HOOKLINE_NIBBLES_INL
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

static_assert(std::endian::native == std::endian::little, "codes are packed as words whose low byte comes first");

/// As many codes are made or read at a time: all targets' registers go into it.
inline constexpr std::size_t kGroup = 64;

/// A group of bytes below 16 into half as many.
HWY_INLINE void pack_nibbles(const std::uint8_t* codes, std::byte* to) {
  for (std::size_t i = 0; i < kGroup / 8; ++i) {
    std::uint64_t word;
    __builtin_memcpy(&word, codes + 8 * i, 8);
    word = (word | (word >> 4)) & 0x00ff00ff00ff00ffu;
    word = (word | (word >> 8)) & 0x0000ffff0000ffffu;
    const auto packed = static_cast<std::uint32_t>(word | (word >> 16));
    __builtin_memcpy(to + 4 * i, &packed, 4);
  }
}

/// The other way round.
HWY_INLINE void unpack_nibbles(const std::byte* from, std::uint8_t* codes) {
  for (std::size_t i = 0; i < kGroup / 8; ++i) {
    std::uint32_t packed;
    __builtin_memcpy(&packed, from + 4 * i, 4);
    std::uint64_t word = packed;
    word = (word | (word << 16)) & 0x0000ffff0000ffffu;
    word = (word | (word << 8)) & 0x00ff00ff00ff00ffu;
    word = (word | (word << 4)) & 0x0f0f0f0f0f0f0f0fu;
    __builtin_memcpy(codes + 8 * i, &word, 8);
  }
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
