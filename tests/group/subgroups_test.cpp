// Tests subgroups: split and local_group.
#include <hookline/group/subgroups.hpp>

#include <gtest/gtest.h>

#include "group/rank_threads.hpp"
#include "harness/interrupted_group.hpp"

namespace hookline::testing {
namespace {

TEST(Subgroups, WhatTheRanksAgreeByOutlivesAWaitThatIsInterrupted) {
  const Groups groups = threads(2);
  const auto split = std::make_shared<InterruptedGroup>(*groups[0]);
  EXPECT_THROW(split->split(0, 0), InterruptedGroup::Interrupt);
  EXPECT_TRUE(split->memory_lives());
  const auto host = std::make_shared<InterruptedGroup>(*groups[1]);
  EXPECT_THROW(host_group(host), InterruptedGroup::Interrupt);
  EXPECT_TRUE(host->memory_lives());
}

}  // namespace
}  // namespace hookline::testing
