// Counter-based random numbers: each number depends only on a key and an element index.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace hookline::kernel {

/// The key of the random numbers of one call. The number of element i is a hash of `first_index` + i (modulo 2^32) and
/// the two keys; see uniform_offset in quantize.cpp.
struct CounterRng {
  std::uint32_t first_index = 0;
  std::uint32_t key = 0;
  std::uint32_t second_key = 0;
};

/// The finalizer of MurmurHash3 with Stafford's constants ("mix 13"): each input bit affects about half of the output
/// bits.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Returns the generator of a seed, step, bucket and rank, starting with element `first_index`.
constexpr CounterRng make_counter_rng(std::uint64_t seed, std::uint64_t step, std::uint64_t bucket, std::uint64_t rank,
                                      std::uint64_t first_index) {
  std::uint64_t key = 0;
  for (const std::uint64_t word : {seed, step, bucket, rank, first_index >> 32})
    key = mix_bits(key + word + 0x9e3779b97f4a7c15u);
  return {static_cast<std::uint32_t>(first_index), static_cast<std::uint32_t>(key),
          static_cast<std::uint32_t>(key >> 32)};
}

}  // namespace hookline::kernel
