// Tests for InterruptScope. The store contract tests interrupted waits.
#include <hookline/core/interrupt.hpp>

#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace hookline {
namespace {

void outer() { throw std::domain_error("outer"); }
void inner() { throw std::range_error("inner"); }

TEST(Interrupt, ScopesNestAndBelongToTheirThread) {
  check_interrupt();
  {
    const InterruptScope first(outer);
    EXPECT_THROW(check_interrupt(), std::domain_error);
    {
      const InterruptScope second(inner);
      EXPECT_THROW(check_interrupt(), std::range_error);
    }
    EXPECT_THROW(check_interrupt(), std::domain_error);
    std::thread([] { check_interrupt(); }).join();
  }
  check_interrupt();
}

}  // namespace
}  // namespace hookline
