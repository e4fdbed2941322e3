// The checksum for each target, in rows of 32 words: at least two independent registers hide the latency.
#include "kernel/checksum.hpp"

#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/checksum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/float_lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kRow = 32;
inline constexpr std::uint32_t kOdd = 0x9e3779b1u;

HWY_INLINE void mix_rows(std::uint32_t* state, const std::byte* data, std::size_t rows) {
  const Words d;
  constexpr std::size_t kRegisters = kRow / kLanes;
  const auto odd = hn::Set(d, kOdd);
  hn::Vec<Words> v[kRegisters];
  for (std::size_t r = 0; r < kRegisters; ++r) v[r] = hn::LoadU(d, state + r * kLanes);
  for (std::size_t row = 0; row < rows; ++row, data += kRow * 4) {
    for (std::size_t r = 0; r < kRegisters; ++r) {
      hn::Vec<Words> word;
      if constexpr (kLanes == 1) {
        std::uint32_t one;
        __builtin_memcpy(&one, data + r * 4, 4);
        word = hn::Set(d, one);
      } else {
        word = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(data + r * kLanes * 4));
      }
      const auto product = hn::Mul(hn::Xor(v[r], word), odd);
      v[r] = hn::Xor(product, hn::ShiftRight<15>(product));
    }
  }
  for (std::size_t r = 0; r < kRegisters; ++r) hn::StoreU(v[r], d, state + r * kLanes);
}

std::uint32_t checksum_of(const std::byte* data, std::size_t bytes, std::uint32_t seed) {
  std::uint32_t state[kRow];
  for (std::size_t j = 0; j < kRow; ++j) state[j] = seed + static_cast<std::uint32_t>(j);
  const std::size_t rows = bytes / (kRow * 4);
  mix_rows(state, data, rows);
  if (const std::size_t done = rows * kRow * 4; done < bytes) {
    std::byte last[kRow * 4] = {};
    __builtin_memcpy(last, data + done, bytes - done);
    mix_rows(state, last, 1);
  }
  std::uint32_t sum = seed ^ static_cast<std::uint32_t>(bytes);
  for (const std::uint32_t lane : state) {
    sum = (sum ^ lane) * kOdd;
    sum ^= sum >> 15;
  }
  return sum;
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

std::uint32_t checksum(const std::byte* data, std::size_t bytes, std::uint32_t seed, Target target) {
  return HOOKLINE_DISPATCH(target, checksum_of)(data, bytes, seed);
}

}  // namespace hookline::kernel
#endif
