// Random numbers by counting: which number an element gets depends on a key and its place alone, not on who draws.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace hookline::kernel {

/// What the numbers of one call are drawn by. The number of element i is made of `first` + i (modulo 2^32) and the two
/// keys by two multiplications and shifts; see draw in quantise.cpp.
struct Draws {
  std::uint32_t first = 0;
  std::uint32_t key = 0;
  std::uint32_t second_key = 0;
};

/// The last mixing of MurmurHash3 with Stafford's constants (his "mix 13"): every bit of x moves about half of the
/// result's.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Numbers of their own for every seed, step, bucket and rank, from element `first` on.
constexpr Draws draws_of(std::uint64_t seed, std::uint64_t step, std::uint64_t bucket, std::uint64_t rank,
                         std::uint64_t first) {
  std::uint64_t key = 0;
  for (const std::uint64_t part : {seed, step, bucket, rank, first >> 32})
    key = mix_bits(key + part + 0x9e3779b97f4a7c15u);
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

}  // namespace hookline::kernel
