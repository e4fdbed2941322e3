// Tests for codec specs: parsing, formatting and error messages.
#include "codec/codec_name.hpp"

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline::codec {
namespace {

using Range = CodecOptions::Range;
using Rounding = CodecOptions::Rounding;

TEST(CodecName, ReadsWhatItStandsFor) {
  EXPECT_EQ(read_codec_text("fp16").format, CodecOptions::Format::float16);
  EXPECT_EQ(read_codec_text(" fp16 ").format, CodecOptions::Format::float16);
  EXPECT_EQ(read_codec_text("bf16()").format, CodecOptions::Format::bfloat16);
  EXPECT_EQ(read_codec_text("int8"), (CodecOptions{.bits = 8, .block = 512, .range = Range::affine}));
  EXPECT_EQ(read_codec_text("int4"), (CodecOptions{.bits = 4, .block = 128, .range = Range::symmetric}));
  EXPECT_EQ(read_codec_text("int8( block = tensor , rounding=stochastic,checksum=false)"),
            (CodecOptions{.bits = 8, .block = 0, .rounding = Rounding::stochastic, .checksum = false}));
  EXPECT_EQ(read_codec_text("int4(range=affine, block=7)"), (CodecOptions{.bits = 4, .block = 7}));
  EXPECT_EQ(read_codec_text("int8(block=0)"), read_codec_text("int8(block=tensor)"));
}

TEST(CodecName, NamesReadBack) {
  for (const std::string text : {"fp16", "bf16(checksum=false)", "int4(block=128)", "int8(block=512)",
                                 "int8(block=tensor, range=symmetric, rounding=stochastic, checksum=false)"}) {
    EXPECT_EQ(name_of(read_codec_text(text)), text);
  }
}

void expect_refused(const std::string& text, const std::string& part) {
  try {
    read_codec_text(text);
    ADD_FAILURE() << text << " was accepted";
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(CodecName, SaysWhereAndWhatIsAllowed) {
  expect_refused("", "fp16, bf16, int8 or int4 was expected at character 1, not the end");
  expect_refused("int3", "fp16, bf16, int8 or int4 was expected at character 1, not 'int3'");
  expect_refused("int8(blok=3)", "block, range, rounding or checksum was expected at character 6, not 'blok=3)'");
  expect_refused("int8(block=-1)",
                 "a whole number, or 'tensor' for one block, was expected at character 12, not '-1)'");
  expect_refused("int8(block=12x)", "at character 12");
  expect_refused("int8(block=99999999999999999999)", "at character 12");
  expect_refused("int8(block)", "'=' was expected at character 11");
  expect_refused("int8(block=3", "',' or ')' was expected at character 13, not the end");
  expect_refused("int8(block=3) x", "the end was expected at character 15");
  expect_refused("int8(range=odd)", "affine or symmetric was expected at character 12");
  expect_refused("int8(block=3, block=3)", "not given already");
  expect_refused("fp16(block=3)", "checksum, the only option of this codec");
}

}  // namespace
}  // namespace hookline::codec
