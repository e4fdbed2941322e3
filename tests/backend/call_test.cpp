// Comparing what the ranks call.
#include "backend/call.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace hookline::backend {
namespace {

TEST(Calls, WithTheSameNanAreTheSame) {
  Call call;
  call.factor = std::numeric_limits<double>::quiet_NaN();
  const Call calls[] = {call, call};
  EXPECT_EQ(difference(calls, 2), "");
}

}  // namespace
}  // namespace hookline::backend
