// FNV-1a: a hash that is the same in every process, so that ranks can compare what they have. Not against forgers.
#pragma once

#include <cstdint>
#include <string_view>

namespace hookline::core {

inline constexpr std::uint64_t kHashOfNothing = 0xcbf29ce484222325;

/// The hash of what `hash` is of, and one value more.
constexpr std::uint64_t hash_on(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * 0x100000001b3; }

/// Of the bytes of a text.
constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = kHashOfNothing;
  for (const char c : text) hash = hash_on(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace hookline::core
