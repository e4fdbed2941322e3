// Tests the parser of hook specs.
#include "hook/hook_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline::hook {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(HookSpec, ParsesNamesOptionsAndWrappers) {
  const auto parts = parse_hook_spec(" powersgd( rank=2,start_iter = 10 , wire=fp16 )|b() | c ");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].name, "powersgd");
  EXPECT_THAT(parts[0].options, ElementsAre(Pair("rank", "2"), Pair("start_iter", "10"), Pair("wire", "fp16")));
  EXPECT_EQ(parts[1].name, "b");
  EXPECT_TRUE(parts[1].options.empty());
  EXPECT_EQ(parts[2].name, "c");
}

TEST(HookSpec, ErrorsNamePositionAndExpectation) {
  const auto message = [](const char* text) {
    try {
      (void)parse_hook_spec(text);
      return std::string("nothing");
    } catch (const InvalidArgument& e) {
      return std::string(e.what());
    }
  };
  EXPECT_THAT(message(""), HasSubstr("expected the name of a hook at character 1, got the end"));
  EXPECT_THAT(message("a |"), HasSubstr("at character 4"));
  EXPECT_THAT(message("a b"), HasSubstr("expected '|' or the end at character 3, got 'b'"));
  EXPECT_THAT(message("a(x)"), HasSubstr("expected '=' at character 4"));
  EXPECT_THAT(message("a(x=)"), HasSubstr("expected a value"));
  EXPECT_THAT(message("a(x=1"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(message("a(x=1,x=2)"), HasSubstr("given twice"));
  EXPECT_THAT(message("2a"), HasSubstr("the name of a hook"));
  EXPECT_THAT(message("a(x=1))"), HasSubstr("'|' or the end"));
}

}  // namespace
}  // namespace hookline::hook
