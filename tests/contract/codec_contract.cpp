// Contract of codecs: exact sizes, deterministic bytes, non-finite values that stay non-finite, and detected
// corruption.
#include "contract/codec_contract.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>

namespace hookline::contract {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CodecContract);

namespace {

using Bytes = std::vector<std::byte>;
constexpr std::array<std::size_t, 12> kCounts = {0, 1, 2, 3, 31, 127, 128, 129, 511, 513, 1024, 5000};

std::vector<float> values_of(std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.1f);
  std::vector<float> result(count);
  for (float& value : result) value = normal(random);
  return result;
}

Bytes encoded(const Codec& codec, std::span<const float> values, const RoundingKey& key = {}) {
  Bytes message(codec.encoded_bytes(values.size()));
  codec.encode(values, message, key);
  return message;
}

std::vector<float> decoded(const Codec& codec, std::span<const std::byte> message, std::size_t count) {
  std::vector<float> values(count, 5.0f);
  codec.decode(message, values);
  return values;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

TEST_P(CodecContract, EncodesAnyCountAtAnyAlignment) {
  for (const std::size_t count : kCounts) {
    const std::vector<float> values = values_of(count);
    const Bytes message = encoded(*codec, values);
    EXPECT_GE(message.size(), kMessageHeaderBytes);
    const std::vector<float> back = decoded(*codec, message, count);
    const float most =
        count ? std::abs(*std::ranges::max_element(values, {}, [](float v) { return std::abs(v); })) : 0.0f;
    for (std::size_t i = 0; i < count; ++i) ASSERT_LE(std::abs(back[i] - values[i]), most / 7) << i << " of " << count;
    for (const std::size_t offset : {1u, 2u, 5u, 33u}) {
      Bytes buffer(message.size() + 64, std::byte{0xa5});
      codec->encode(values, std::span(buffer).subspan(offset, message.size()));
      const auto begin = buffer.begin() + static_cast<std::ptrdiff_t>(offset);
      const auto end = begin + static_cast<std::ptrdiff_t>(message.size());
      EXPECT_TRUE(std::equal(begin, end, message.begin()));
      const auto untouched = [](std::byte b) { return b == std::byte{0xa5}; };
      EXPECT_TRUE(std::all_of(buffer.begin(), begin, untouched) && std::all_of(end, buffer.end(), untouched));
      EXPECT_TRUE(same(decoded(*codec, std::span(buffer).subspan(offset, message.size()), count), back));
    }
  }
}

TEST_P(CodecContract, DecodeAddMatchesDecode) {
  for (const std::size_t count : kCounts) {
    const Bytes message = encoded(*codec, values_of(count));
    std::vector<float> expected = values_of(count, 2), sum = expected;
    const std::vector<float> back = decoded(*codec, message, count);
    for (std::size_t i = 0; i < count; ++i) expected[i] += back[i];
    codec->decode_add(message, sum);
    EXPECT_TRUE(same(sum, expected)) << count;
  }
}

TEST_P(CodecContract, DecodeTwoMatchesSequentialDecodes) {
  for (const std::size_t count : kCounts) {
    std::vector<float> values = values_of(count, 2);
    if (count > 600) values[600] = std::numeric_limits<float>::quiet_NaN();
    const Bytes first = encoded(*codec, values_of(count)), second = encoded(*codec, values);
    std::vector<float> expected = decoded(*codec, first, count), sum(count, 5.0f), plain(count, 5.0f);
    codec->decode_add(second, expected);
    for (float& value : expected) value *= 0.5f;
    codec->decode_sum_two(first, second, 0.5f, sum);
    EXPECT_TRUE(same(sum, expected)) << count;
    codec->Codec::decode_sum_two(first, second, 0.5f, plain);
    EXPECT_TRUE(same(plain, expected)) << count;
    EXPECT_THROW(codec->decode_sum_two(first, std::span(second).first(kMessageHeaderBytes - 1), 0.5f, sum),
                 InvalidArgument);
    EXPECT_THROW(codec->decode_sum_two(std::span(first).first(kMessageHeaderBytes - 1), second, 0.5f, sum),
                 InvalidArgument);
    if (!GetParam().detects_corruption || count == 0) continue;
    Bytes corrupt = second;
    corrupt.back() ^= std::byte{1};
    EXPECT_THROW(codec->decode_sum_two(first, corrupt, 0.5f, sum), InvalidArgument);
    EXPECT_THROW(codec->decode_sum_two(corrupt, first, 0.5f, sum), InvalidArgument);
  }
}

TEST_P(CodecContract, ResidualIsExact) {
  const RoundingKey key{.seed = 1, .step = 2, .bucket = 3, .rank = 4, .first_index = 5};
  for (const std::size_t count : kCounts) {
    std::vector<float> values = values_of(count), error = values_of(count, 7), sum = error, expected_error(count);
    if (count > 600) values[600] = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
    const Bytes message = encoded(*codec, sum, key);
    const std::vector<float> back = decoded(*codec, message, count);
    for (std::size_t i = 0; i < count; ++i) expected_error[i] = std::isfinite(back[i]) ? sum[i] - back[i] : 0.0f;
    Bytes again(message.size()), plain(message.size());
    std::vector<float> plain_error = error;
    codec->encode_with_residual(values, error, again, key);
    EXPECT_TRUE(again == message) << count;
    EXPECT_TRUE(same(error, expected_error)) << count;
    codec->Codec::encode_with_residual(values, plain_error, plain, key);
    EXPECT_TRUE(plain == message) << count;
    EXPECT_TRUE(same(plain_error, expected_error)) << count;
  }
}

TEST_P(CodecContract, SameKeyGivesSameBytes) {
  const std::vector<float> values = values_of(3000);
  const RoundingKey key{.seed = 9, .step = 8, .bucket = 7, .rank = 6, .first_index = 5};
  EXPECT_TRUE(encoded(*codec, values, key) == encoded(*codec, values, key));
  EXPECT_TRUE(encoded(*codec, values, key) == encoded(*GetParam().make(), values, key));
}

TEST_P(CodecContract, NonFiniteValuesStayNonFinite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, inf, -inf, -nan}) {
    for (const std::size_t count : {1u, 2u, 300u, 1025u}) {
      for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
        std::vector<float> values = values_of(count);
        values[at] = bad;
        const std::vector<float> back = decoded(*codec, encoded(*codec, values), count);
        EXPECT_FALSE(std::isfinite(back[at])) << bad << " at " << at << " of " << count;
        for (std::size_t i = 0; i < count; ++i) {
          const float error = std::isfinite(back[i]) ? std::abs(back[i] - values[i]) : 0.0f;
          ASSERT_LT(error, 1.0f) << i;
        }
      }
    }
  }
}

TEST_P(CodecContract, ZerosDenormalsAndHugeValues) {
  for (const std::size_t count : {1u, 100u, 1000u}) {
    std::vector<float> zeros(count);
    for (std::size_t i = 0; i < count; i += 3) zeros[i] = -0.0f;
    for (const float value : decoded(*codec, encoded(*codec, zeros), count)) EXPECT_EQ(value, 0.0f);
  }
  std::vector<float> tiny(1000), huge(1000);
  for (std::size_t i = 0; i < tiny.size(); ++i) {
    tiny[i] = static_cast<float>(i) * std::numeric_limits<float>::denorm_min() * (i % 2 ? 1.0f : -1.0f);
    huge[i] = std::numeric_limits<float>::max() * (static_cast<float>(i) / 999.0f) * (i % 2 ? 1.0f : -1.0f);
  }
  for (const float value : decoded(*codec, encoded(*codec, tiny), tiny.size())) EXPECT_LT(std::abs(value), 1e-7f);
  // A value that the format cannot represent becomes infinity, never a wrong finite value.
  const std::vector<float> back = decoded(*codec, encoded(*codec, huge), huge.size());
  for (std::size_t i = 0; i < huge.size(); ++i) {
    ASSERT_FALSE(std::isnan(back[i])) << i;
    const float error = std::isfinite(back[i]) ? std::abs(back[i] / 8 - huge[i] / 8) : 0.0f;
    ASSERT_LE(error, 0.02f * huge[999]) << i;
  }
}

TEST_P(CodecContract, RejectsBuffersOfTheWrongSize) {
  const std::vector<float> values = values_of(100);
  Bytes buffer(codec->encoded_bytes(100) + 1);
  EXPECT_THROW(codec->encode(values, buffer), InvalidArgument);
  EXPECT_THROW(codec->encode(values, std::span(buffer).first(buffer.size() - 2)), InvalidArgument);
  EXPECT_THROW(codec->encode(values, {}), InvalidArgument);
  std::vector<float> error(100, 1.0f);
  EXPECT_THROW(codec->encode_with_residual(values, error, buffer), InvalidArgument);
  EXPECT_THROW(
      codec->encode_with_residual(values, std::span(error).first(99), std::span(buffer).first(buffer.size() - 1)),
      InvalidArgument);
  EXPECT_TRUE(std::ranges::all_of(error, [](float v) { return v == 1.0f; }));
}

// Expects that decode and decode_add reject the message and leave the values unchanged.
void expect_rejected(const Codec& codec, std::span<const std::byte> message, std::size_t count) {
  std::vector<float> values(count, 5.0f);
  EXPECT_THROW(codec.decode(message, values), InvalidArgument);
  EXPECT_THROW(codec.decode_add(message, values), InvalidArgument);
  EXPECT_TRUE(std::ranges::all_of(values, [](float v) { return v == 5.0f; }));
}

TEST_P(CodecContract, DetectsCorruption) {
  for (const std::size_t count : {0u, 1u, 300u}) {
    Bytes message = encoded(*codec, values_of(count));
    for (std::size_t size = 0; size < message.size(); size += size < 40 ? 1 : 37) {
      // A separate allocation, so that a sanitizer detects reads past its end.
      const Bytes cut(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size));
      expect_rejected(*codec, cut, count);
    }
    Bytes longer = message;
    longer.push_back(std::byte{0});
    expect_rejected(*codec, longer, count);
    expect_rejected(*codec, message, count + 1);
    if (count) expect_rejected(*codec, message, count - 1);
    const std::size_t end = GetParam().detects_corruption ? message.size() : kMessageHeaderBytes;
    for (std::size_t i = 0; i < end; ++i) {
      for (const unsigned bit : {0u, 3u, 7u}) {
        message[i] ^= std::byte{1} << bit;
        SCOPED_TRACE(i);
        expect_rejected(*codec, message, count);
        message[i] ^= std::byte{1} << bit;
      }
    }
    EXPECT_NO_THROW(decoded(*codec, message, count));
  }
}

TEST_P(CodecContract, NeverReadsOutOfBounds) {
  std::mt19937 random(3);
  const Bytes whole = encoded(*codec, values_of(300));
  for (int turn = 0; turn < 300; ++turn) {
    Bytes message = whole;
    for (std::size_t i = turn % 2 ? 0 : kMessageHeaderBytes; i < message.size(); ++i) {
      if (random() % 4 == 0) message[i] = static_cast<std::byte>(random());
    }
    std::vector<float> values(300);
    try {
      codec->decode(message, values);
      codec->decode_add(message, values);
    } catch (const InvalidArgument&) {
    }
  }
}

TEST_P(CodecContract, IsThreadSafe) {
  const std::vector<float> values = values_of(2000);
  const Bytes expected = encoded(*codec, values);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) wrong += encoded(*codec, values) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hookline::contract
