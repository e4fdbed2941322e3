// Tests for encoded messages: description, binary layout and damaged messages.
#include "codec/message.hpp"

#include <vector>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

std::vector<std::byte> message_of(const char* codec, std::size_t count) {
  const std::vector<float> values(count, 1.5f);
  std::vector<std::byte> message(make_codec(codec)->encoded_bytes(count));
  make_codec(codec)->encode(values, message);
  return message;
}

std::string refusal(std::span<const std::byte> message) {
  try {
    describe_message(message);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

TEST(Message, DescribesItself) {
  for (const char* text : {"fp16(checksum=false)", "bf16", "int8(block=512)", "int4(block=tensor, range=affine)",
                           "int8(block=7, range=symmetric, rounding=stochastic, checksum=false)"}) {
    for (const std::size_t count : {0u, 77u}) {
      const MessageInfo info = describe_message(message_of(text, count));
      EXPECT_EQ(info.count, count);
      EXPECT_EQ(make_codec(info.options)->name(), text);
    }
  }
}

TEST(Message, SaysWhatIsWrong) {
  std::vector<std::byte> message = message_of("fp16(checksum=false)", 10);
  EXPECT_NE(refusal(std::span(message).first(31)).find("31 bytes are no encoded message"), std::string::npos);
  message[4] = std::byte{2};
  EXPECT_NE(refusal(message).find("version 2, and only version 1"), std::string::npos);
  message[4] = std::byte{1};
  message[0] = std::byte{'X'};
  EXPECT_NE(refusal(message).find("do not begin with HKLC"), std::string::npos);
  message[0] = std::byte{'H'};
  message[15] = std::byte{0xff};  // an impossible count
  EXPECT_NE(refusal(message).find("no message of 52 bytes has"), std::string::npos);
  message[15] = std::byte{0};
  message[5] = std::byte{9};
  EXPECT_NE(refusal(message).find("unknown"), std::string::npos);
  message[5] = std::byte{2};  // integers of 16 bits
  EXPECT_NE(refusal(message).find("describe_message: no message of 52 bytes has"), std::string::npos);
  message[5] = std::byte{0};
  EXPECT_EQ(refusal(message), "");
  message[31] = std::byte{1};  // reserved bytes must be 0
  EXPECT_NE(refusal(message), "");
}

TEST(Message, OfAnotherCodecIsRefused) {
  std::vector<float> values(10);
  try {
    make_codec("bf16")->decode(message_of("fp16", 10), values);
    ADD_FAILURE();
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("10 values as float16"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("expected were 10 values as bfloat16"), std::string::npos) << e.what();
  }
}

TEST(Message, HasABinaryLayoutThatStays) {
  const std::vector<std::byte> message = message_of("fp16(checksum=false)", 1);
  const std::vector<unsigned> want = {'H', 'K', 'L', 'C', 1, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
                                      0,   0,   0,   0,   0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3e};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(static_cast<unsigned>(message[i]), want[i]) << i;
}

}  // namespace
}  // namespace hookline
