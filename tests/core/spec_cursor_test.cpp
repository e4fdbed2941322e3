// Tests for SpecCursor.
#include "core/spec_cursor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline::core {
namespace {

template <class F>
std::string refused(F f) {
  try {
    f();
    return "nothing";
  } catch (const InvalidArgument& e) {
    return e.what();
  }
}

TEST(SpecCursor, ReadsWordsValuesAndCharacters) {
  SpecCursor cursor("  one_1 ( x = a b.c , y=) ", "text");
  EXPECT_EQ(cursor.word(), "one_1");
  EXPECT_FALSE(cursor.accept(')'));
  EXPECT_TRUE(cursor.accept('('));
  EXPECT_EQ(cursor.word(), "x");
  EXPECT_TRUE(cursor.accept('='));
  EXPECT_EQ(cursor.value(), "a b.c");
  EXPECT_TRUE(cursor.accept(','));
  EXPECT_EQ(cursor.word(), "y");
  EXPECT_TRUE(cursor.accept('='));
  EXPECT_EQ(cursor.value(), "");
  EXPECT_FALSE(cursor.at_end());
  EXPECT_TRUE(cursor.accept(')'));
  EXPECT_TRUE(cursor.at_end());
  EXPECT_EQ(cursor.word(), "");
}

TEST(SpecCursor, ErrorsNameExpectationAndPosition) {
  SpecCursor cursor("ab  cd", "hook");
  (void)cursor.word();
  EXPECT_FALSE(cursor.at_end());
  EXPECT_EQ(refused([&] { cursor.throw_expected("'('"); }),
            "invalid hook spec 'ab  cd': expected '(' at character 5, got 'cd'");
  EXPECT_EQ(refused([&] { cursor.throw_expected_at_last("a number"); }),
            "invalid hook spec 'ab  cd': expected a number at character 1, got 'ab  cd'");
  (void)cursor.value();
  EXPECT_THAT(refused([&] { cursor.throw_expected("more"); }), ::testing::HasSubstr("at character 7, got the end"));
}

}  // namespace
}  // namespace hookline::core
