// Tests for the int8 and int4 codecs: contract, exact sizes and NaN.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>

#include "contract/codec_contract.hpp"

namespace hookline {
namespace contract {

constexpr const char* kTexts[] = {"int8",
                                  "int4",
                                  "int8(block=tensor)",
                                  "int4(block=tensor, range=affine)",
                                  "int8(block=7, range=symmetric)",
                                  "int4(block=100, range=affine, rounding=stochastic)",
                                  "int8(block=128, rounding=stochastic)",
                                  "int4(block=64, rounding=stochastic)",
                                  "int8(block=1, rounding=stochastic, range=symmetric)"};

std::vector<CodecCase> integer_cases() {
  std::vector<CodecCase> cases;
  for (const char* text : kTexts) cases.push_back({[text] { return make_codec(text); }});
  cases.push_back({[] { return make_codec("int4(checksum=false)"); }, false});
  cases.push_back({[] { return make_codec("int8(checksum=false)"); }, false});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Integer, CodecContract, ::testing::ValuesIn(integer_cases()));

}  // namespace contract

namespace {

TEST(QuantizeCodec, SizesToTheByte) {
  const auto size = [](const char* text, std::size_t count) { return make_codec(text)->encoded_bytes(count); };
  EXPECT_EQ(size("int8(block=tensor)", 0), 32u);
  EXPECT_EQ(size("int8(block=tensor)", 1000), 32u + 8 + 1000);
  EXPECT_EQ(size("int8(block=512)", 512), 32u + 8 + 512);
  EXPECT_EQ(size("int8(block=512)", 513), 32u + 16 + 513);
  EXPECT_EQ(size("int8(block=512, range=symmetric)", 513), 32u + 8 + 513);
  EXPECT_EQ(size("int4(block=128)", 1), 32u + 4 + 1);
  EXPECT_EQ(size("int4(block=128)", 129), 32u + 8 + 64 + 1);
  EXPECT_EQ(size("int4(block=7)", 20), 32u + 3 * 4 + 4 + 4 + 3);  // the codes of each block start on a byte boundary
}

TEST(QuantizeCodec, NanStaysInItsBlock) {
  std::vector<float> values(1000, 0.5f), back(1000);
  values[300] = NAN;
  const CodecPtr codec = make_codec("int8(block=100)");
  std::vector<std::byte> message(codec->encoded_bytes(1000));
  codec->encode(values, message);
  codec->decode(message, back);
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(std::isnan(back[i]), i / 100 == 3) << i;
}

TEST(QuantizeCodec, RejectsInvalidOptions) {
  const auto refusal = [](const CodecOptions& options) -> std::string {
    try {
      make_codec(options);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal({.bits = 5}).find("bits must be 8 or 4, got 5"), std::string::npos);
  EXPECT_NE(refusal({.bits = 0}).find("bits must be 8 or 4"), std::string::npos);
  EXPECT_NE(refusal({.block = -3}).find("block must be positive"), std::string::npos);
  EXPECT_NE(refusal({.format = CodecOptions::Format::float16, .rounding = CodecOptions::Rounding::stochastic})
                .find("stochastic rounding requires the integer format"),
            std::string::npos);
  EXPECT_EQ(refusal({.block = std::numeric_limits<std::int64_t>::max()}), "");
}

}  // namespace
}  // namespace hookline
