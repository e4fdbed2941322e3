// Tests for the checksum: equal on every target, and sensitive to small changes.
#include "kernel/checksum.hpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace hookline::kernel {
namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<std::byte>(i * 73 + i / 255);
  return result;
}

// Reference implementation of the checksum: one word at a time.
std::uint32_t reference(const std::byte* data, std::size_t bytes, std::uint32_t seed) {
  const auto mix = [](std::uint32_t state, std::uint32_t word) {
    state = (state ^ word) * 0x9e3779b1u;
    return state ^ (state >> 15);
  };
  std::uint32_t lanes[32];
  for (std::uint32_t j = 0; j < 32; ++j) lanes[j] = seed + j;
  std::vector<std::byte> padded(data, data + bytes);
  padded.resize((bytes + 127) / 128 * 128);
  for (std::size_t i = 0; i < padded.size(); i += 4) {
    std::uint32_t word;
    std::memcpy(&word, &padded[i], 4);
    lanes[i / 4 % 32] = mix(lanes[i / 4 % 32], word);
  }
  std::uint32_t sum = seed ^ static_cast<std::uint32_t>(bytes);
  for (const std::uint32_t lane : lanes) sum = mix(sum, lane);
  return sum;
}

TEST(Checksum, AllTargetsAgree) {
  const std::vector<std::byte> bytes = some_bytes(2000);
  for (std::size_t count = 0; count < 1900; count += count < 300 ? 1 : 61) {
    const std::size_t off = count % 13;
    const std::uint32_t want = reference(&bytes[off], count, 17);
    for (const Target target : supported_targets()) {
      ASSERT_EQ(checksum(&bytes[off], count, 17, target), want) << name(target) << ", " << count << " bytes";
    }
  }
}

TEST(Checksum, DetectsFlippedBitsAndSwappedWords) {
  std::vector<std::byte> bytes = some_bytes(300);
  const std::uint32_t whole = checksum(bytes.data(), bytes.size(), 0);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      bytes[i] ^= std::byte{1} << bit;
      ASSERT_NE(checksum(bytes.data(), bytes.size(), 0), whole) << "byte " << i << ", bit " << bit;
      bytes[i] ^= std::byte{1} << bit;
    }
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 4, bytes.begin() + 128);
  EXPECT_NE(checksum(bytes.data(), bytes.size(), 0), whole);
  std::vector<std::byte> zeros(256);
  EXPECT_NE(checksum(zeros.data(), 255, 0), checksum(zeros.data(), 256, 0));
}

}  // namespace
}  // namespace hookline::kernel
