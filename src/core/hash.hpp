// FNV-1a hashes, equal in every process, so that ranks can compare their data. Not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace hookline::core {

inline constexpr std::uint64_t kFnvOffsetBasis = 0xcbf29ce484222325;

/// Returns `hash` extended by one value.
constexpr std::uint64_t hash_combine(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * 0x100000001b3; }

/// Returns the hash of a byte string.
constexpr std::uint64_t hash_bytes(std::string_view text) {
  std::uint64_t hash = kFnvOffsetBasis;
  for (const char c : text) hash = hash_combine(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace hookline::core
