// Tests for the fp16 and bf16 codecs: contract, exact sizes and rounding.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <hookline/codec/make_codec.hpp>

#include "contract/codec_contract.hpp"

namespace hookline {
namespace contract {

INSTANTIATE_TEST_SUITE_P(Cast, CodecContract,
                         ::testing::Values(CodecCase{[] { return make_codec("fp16"); }},
                                           CodecCase{[] { return make_codec("bf16"); }},
                                           CodecCase{[] { return make_codec("fp16(checksum=false)"); }, false}));
}  // namespace contract

namespace {

TEST(CastCodec, UsesTwoBytesPerValue) {
  for (const char* name : {"fp16", "bf16"}) {
    const CodecPtr codec = make_codec(name);
    EXPECT_EQ(codec->name(), name);
    EXPECT_EQ(codec->encoded_bytes(0), 32u);
    EXPECT_EQ(codec->encoded_bytes(1), 34u);
    EXPECT_EQ(codec->encoded_bytes(1 << 20), 32u + (2u << 20));
  }
}

TEST(CastCodec, RoundsToTheFormat) {
  const std::vector<float> values = {1.0f, -2.5f, 65504.0f, 1e5f, -1e5f, 1e38f, 1e-8f, 1.001f};
  std::vector<float> back(values.size());
  std::vector<std::byte> message(make_codec("fp16")->encoded_bytes(values.size()));
  make_codec("fp16")->encode(values, message);
  make_codec("fp16")->decode(message, back);
  EXPECT_EQ(back, (std::vector<float>{1.0f, -2.5f, 65504.0f, INFINITY, -INFINITY, INFINITY, 0.0f, 1.0009765625f}));
  make_codec("bf16")->encode(values, message);
  make_codec("bf16")->decode(message, back);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_LE(std::abs(back[i] - values[i]), std::abs(values[i]) * 0x1p-8f);
}

}  // namespace
}  // namespace hookline
