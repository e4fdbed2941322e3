// Tests for encoded messages: description, binary layout and corrupt messages.
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

TEST(Message, ErrorsNameTheDefect) {
  std::vector<std::byte> message = message_of("fp16(checksum=false)", 10);
  EXPECT_NE(refusal(std::span(message).first(31)).find("truncated message: expected at least 32 bytes, got 31"),
            std::string::npos);
  message[4] = std::byte{2};
  EXPECT_NE(refusal(message).find("unsupported message version: expected 1, got 2"), std::string::npos);
  message[4] = std::byte{1};
  message[0] = std::byte{'X'};
  EXPECT_NE(refusal(message).find("do not start with HKLC"), std::string::npos);
  message[0] = std::byte{'H'};
  message[15] = std::byte{0xff};  // an impossible count
  EXPECT_NE(refusal(message).find("invalid header for 52 bytes"), std::string::npos);
  message[15] = std::byte{0};
  message[5] = std::byte{9};
  EXPECT_NE(refusal(message).find("unknown"), std::string::npos);
  message[5] = std::byte{2};  // integers of 16 bits
  EXPECT_NE(refusal(message).find("describe_message: invalid header for 52 bytes"), std::string::npos);
  message[5] = std::byte{0};
  EXPECT_EQ(refusal(message), "");
  message[31] = std::byte{1};  // reserved bytes must be 0
  EXPECT_NE(refusal(message), "");
}

TEST(Message, RejectsMessagesOfAnotherCodec) {
  std::vector<float> values(10);
  try {
    make_codec("bf16")->decode(message_of("fp16", 10), values);
    ADD_FAILURE();
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("10 values as float16"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("expected 10 values as bfloat16"), std::string::npos) << e.what();
  }
}

TEST(Message, BinaryLayoutIsStable) {
  const std::vector<std::byte> message = message_of("fp16(checksum=false)", 1);
  const std::vector<unsigned> want = {'H', 'K', 'L', 'C', 1, 0, 16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
                                      0,   0,   0,   0,   0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3e};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(static_cast<unsigned>(message[i]), want[i]) << i;
}

}  // namespace
}  // namespace hookline
