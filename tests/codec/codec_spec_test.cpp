// Tests for codec specs: parsing, formatting and error messages.
#include "codec/codec_spec.hpp"

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline::codec {
namespace {

using Range = CodecOptions::Range;
using Rounding = CodecOptions::Rounding;

TEST(CodecSpec, ParsesPresetsAndOptions) {
  EXPECT_EQ(parse_codec_spec("fp16").format, CodecOptions::Format::float16);
  EXPECT_EQ(parse_codec_spec(" fp16 ").format, CodecOptions::Format::float16);
  EXPECT_EQ(parse_codec_spec("bf16()").format, CodecOptions::Format::bfloat16);
  EXPECT_EQ(parse_codec_spec("int8"), (CodecOptions{.bits = 8, .block = 512, .range = Range::affine}));
  EXPECT_EQ(parse_codec_spec("int4"), (CodecOptions{.bits = 4, .block = 128, .range = Range::symmetric}));
  EXPECT_EQ(parse_codec_spec("int8( block = tensor , rounding=stochastic,checksum=false)"),
            (CodecOptions{.bits = 8, .block = 0, .rounding = Rounding::stochastic, .checksum = false}));
  EXPECT_EQ(parse_codec_spec("int4(range=affine, block=7)"), (CodecOptions{.bits = 4, .block = 7}));
  EXPECT_EQ(parse_codec_spec("int8(block=0)"), parse_codec_spec("int8(block=tensor)"));
}

TEST(CodecSpec, NamesParseBack) {
  for (const std::string text : {"fp16", "bf16(checksum=false)", "int4(block=128)", "int8(block=512)",
                                 "int8(block=tensor, range=symmetric, rounding=stochastic, checksum=false)"}) {
    EXPECT_EQ(codec_spec(parse_codec_spec(text)), text);
  }
}

void expect_refused(const std::string& text, const std::string& part) {
  try {
    parse_codec_spec(text);
    ADD_FAILURE() << text << " was accepted";
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(CodecSpec, ErrorsNamePositionAndAllowedValues) {
  expect_refused("", "expected fp16, bf16, int8 or int4 at character 1, got the end");
  expect_refused("int3", "expected fp16, bf16, int8 or int4 at character 1, got 'int3'");
  expect_refused("int8(blok=3)", "expected block, range, rounding or checksum at character 6, got 'blok=3)'");
  expect_refused("int8(block=-1)", "expected a whole number or 'tensor' at character 12, got '-1)'");
  expect_refused("int8(block=12x)", "at character 12");
  expect_refused("int8(block=99999999999999999999)", "at character 12");
  expect_refused("int8(block)", "expected '=' at character 11");
  expect_refused("int8(block=3", "expected ',' or ')' at character 13, got the end");
  expect_refused("int8(block=3) x", "expected the end at character 15");
  expect_refused("int8(range=odd)", "expected affine or symmetric at character 12");
  expect_refused("int8(block=3, block=3)", "each option at most once");
  expect_refused("fp16(block=3)", "checksum (the only option of this codec)");
}

}  // namespace
}  // namespace hookline::codec
