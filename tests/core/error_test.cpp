// Tests for errors: type, message, ranks and cause.
#include <hookline/core/error.hpp>

#include <gtest/gtest.h>

namespace hookline {
namespace {

TEST(Error, DescribesTheWholeChain) {
  const auto refused = std::make_exception_ptr(ResourceError("connection refused"));
  const auto lost = std::make_exception_ptr(PeerLost("rank 3 is gone", refused));
  const auto failed = std::make_exception_ptr(Aborted("step 7 failed", lost));
  EXPECT_EQ(describe(failed), "step 7 failed\n  caused by: rank 3 is gone\n  caused by: connection refused");
  EXPECT_EQ(describe(nullptr), "");
  EXPECT_EQ(describe(std::make_exception_ptr(std::logic_error("foreign"))), "foreign");
  EXPECT_EQ(describe(std::make_exception_ptr(42)), "an exception of an unknown type");
}

TEST(Error, CarriesRanksAscending) {
  const auto cause = std::make_exception_ptr(ResourceError("closed"));
  const PeerLost lost("two are gone", {3, 1}, cause);
  const PeerLost copy = lost;
  EXPECT_EQ(copy.ranks(), (std::vector{1, 3}));
  EXPECT_EQ(copy.cause(), cause);
  EXPECT_TRUE(Timeout("the ranks are not known").ranks().empty());
}

TEST(Error, EveryTypeDerivesFromErrorOnly) {
  EXPECT_THROW(throw Timeout("t"), Error);
  try {
    throw Mismatch("m");
  } catch (const Aborted&) {
    FAIL();
  } catch (const Mismatch& e) {
    EXPECT_STREQ(e.what(), "m");
    EXPECT_EQ(e.cause(), nullptr);
  }
}

}  // namespace
}  // namespace hookline
