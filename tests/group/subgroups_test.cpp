// Tests subgroups: split and local_group.
#include <hookline/group/subgroups.hpp>

#include <gtest/gtest.h>

#include "group/rank_threads.hpp"
#include "harness/interrupted_group.hpp"

namespace hookline::testing {
namespace {

TEST(Subgroups, BuffersOutliveInterruptedWait) {
  const Groups groups = make_thread_groups(2);
  const auto split = std::make_shared<InterruptedGroup>(*groups[0]);
  EXPECT_THROW(split->split(0, 0), InterruptedGroup::Interrupt);
  EXPECT_TRUE(split->tensors_alive());
  const auto host = std::make_shared<InterruptedGroup>(*groups[1]);
  EXPECT_THROW(local_group(host), InterruptedGroup::Interrupt);
  EXPECT_TRUE(host->tensors_alive());
}

}  // namespace
}  // namespace hookline::testing
