// Error feedback: sums over steps come out right, what is no number is forgotten, and a saved state goes on bit for
// bit.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <hookline/codec/error_feedback.hpp>
#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>

namespace hookline {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<float> values_of(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> result(count);
  for (float& value : result) value = normal(random);
  return result;
}

std::vector<float> through(ErrorFeedback& feedback, std::span<const float> values, const RoundingKey& key = {}) {
  Bytes message(feedback.codec()->encoded_bytes(values.size()));
  feedback.encode(values, message, key);
  std::vector<float> back(values.size());
  feedback.codec()->decode(message, back);
  return back;
}

class WithCodec : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, WithCodec,
                         testing::Values("fp16", "bf16", "int8", "int4", "int4(block=tensor)",
                                         "int4(block=32, rounding=stochastic)"));

TEST_P(WithCodec, TheSumOverStepsIsRight) {
  constexpr std::size_t kCount = 300;
  const CodecPtr codec = make_codec(GetParam());
  ErrorFeedback feedback(codec, kCount);
  std::vector<double> sent(kCount), exact(kCount);
  const std::vector<float> always = values_of(kCount, 1);
  for (unsigned step = 0; step < 200; ++step) {
    std::vector<float> values = values_of(kCount, step + 2);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = values[i] * 0.1f + always[i];
    const std::vector<float> back = through(feedback, values, {.step = step});
    for (std::size_t i = 0; i < kCount; ++i) {
      sent[i] += static_cast<double>(back[i]);
      exact[i] += static_cast<double>(values[i]);
    }
  }
  // All that is missing after 200 steps is what is kept, but for rounding in float32.
  double square = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double kept = static_cast<double>(feedback.error()[i]);
    EXPECT_NEAR(exact[i] - sent[i], kept, 2e-4) << i;
    square += kept * kept;
  }
  EXPECT_NEAR(feedback.norm(), std::sqrt(square), 1e-9 * std::sqrt(square));
  EXPECT_GT(feedback.norm(), 0.0);
  feedback.reset();
  EXPECT_EQ(feedback.norm(), 0.0);
}

TEST_P(WithCodec, ForgetsWhatIsNoNumber) {
  constexpr std::size_t kCount = 400;
  for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    ErrorFeedback feedback(make_codec(GetParam()), kCount);
    std::vector<float> values = values_of(kCount, 1);
    through(feedback, values);
    values[70] = bad;
    const std::vector<float> back = through(feedback, values);
    EXPECT_TRUE(std::isfinite(bad) || !std::isfinite(back[70]));
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(std::isfinite(feedback.error()[i])) << i;
      ASSERT_TRUE(std::isfinite(back[i]) || feedback.error()[i] == 0.0f) << i;
    }
    values[70] = 1.0f;
    if (!std::isfinite(bad)) {
      for (const float value : through(feedback, values)) EXPECT_TRUE(std::isfinite(value) && std::abs(value) < 10);
    }
  }
}

TEST_P(WithCodec, ASavedStateGoesOnBitForBit) {
  ErrorFeedback one(make_codec(GetParam()), 200, 50), other(make_codec(GetParam()), 200, 50);
  through(one, values_of(200, 1), {.first = 50});
  const Bytes saved = one.save();
  other.load(saved);
  EXPECT_EQ(other.norm(), one.norm());
  for (unsigned step = 1; step < 4; ++step) {
    const RoundingKey key{.step = step, .first = 50};
    EXPECT_EQ(through(one, values_of(200, step), key), through(other, values_of(200, step), key));
  }
}

TEST(ErrorFeedback, KeepsSlicesApart) {
  const CodecPtr codec = make_codec("int4(block=16)");
  ErrorFeedback whole(codec, 100), owner(codec, 40, 60);
  const std::vector<float> values = values_of(100, 1);
  const auto slice = std::span(values).subspan(60, 40);
  through(whole, std::span(values).first(60));
  EXPECT_EQ(whole.error()[60], 0.0f);
  EXPECT_EQ(through(whole, slice, {.first = 60}), through(owner, slice, {.first = 60}));
  EXPECT_EQ(std::memcmp(&whole.error()[60], owner.error().data(), 160), 0);
  Bytes message(codec->encoded_bytes(40));
  EXPECT_THROW(owner.encode(slice, message, {.first = 59}), InvalidArgument);
  EXPECT_THROW(owner.encode(slice, message, {.first = 61}), InvalidArgument);
  EXPECT_THROW(owner.encode(slice, message, {.first = ~std::uint64_t{0}}), InvalidArgument);
  EXPECT_THROW(ErrorFeedback(nullptr, 1), InvalidArgument);
}

TEST(ErrorFeedback, RefusesBytesOfSomethingElse) {
  ErrorFeedback feedback(make_codec("int8"), 100);
  through(feedback, values_of(100, 1));
  const double norm = feedback.norm();
  const Bytes saved = feedback.save();
  const auto refusal = [&](const Bytes& bytes) -> std::string {
    try {
      feedback.load(bytes);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal(ErrorFeedback(make_codec("int4"), 100).save())
                .find("'hookline error feedback 1: int4(block=128) of places 0 to 100', and here is "
                      "'hookline error feedback 1: int8(block=512) of places 0 to 100'"),
            std::string::npos);
  EXPECT_NE(refusal(ErrorFeedback(make_codec("int8"), 90, 10).save()).find("of places 10 to 100"), std::string::npos);
  EXPECT_NE(refusal({}).find("were not saved by"), std::string::npos);
  EXPECT_NE(refusal(Bytes(500)).find("were not saved by"), std::string::npos);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    Bytes damaged = saved;
    damaged[i] ^= std::byte{0x10};
    EXPECT_NE(refusal(damaged), "") << i;
    EXPECT_NE(refusal(Bytes(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(i))), "") << i;
  }
  EXPECT_EQ(feedback.norm(), norm);
  EXPECT_EQ(refusal(saved), "");
}

}  // namespace
}  // namespace hookline
