// Tests for UTF-8 sanitization.
#include "core/utf8.hpp"

#include <gtest/gtest.h>

namespace hookline::core {
namespace {

TEST(Utf8, WellFormedTextStays) {
  for (const char* const text :
       {"", "plain", "Größe", "层.权重", "\xf0\x9f\x94\xa5", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_EQ(valid_utf8(text), text);
  }
}

TEST(Utf8, EachInvalidByteIsReplaced) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a" + bad + "b");
  EXPECT_EQ(valid_utf8("\xc3"), bad) << "cut off";
  EXPECT_EQ(valid_utf8("\xe5\xb1"), bad + bad) << "cut off";
  EXPECT_EQ(valid_utf8("\x80"), bad) << "a continuation alone";
  EXPECT_EQ(valid_utf8("\xc0\xaf"), bad + bad) << "overlong";
  EXPECT_EQ(valid_utf8("\xe0\x80\xaf"), bad + bad + bad) << "overlong";
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), bad + bad + bad) << "a surrogate";
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), bad + bad + bad + bad) << "beyond Unicode";
}

}  // namespace
}  // namespace hookline::core
