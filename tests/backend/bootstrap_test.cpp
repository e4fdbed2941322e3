// Ranks that die while a group is being created are named on all other ranks long before the timeout.
#include "backend/bootstrap.hpp"

#include <gtest/gtest.h>

#include "harness/killed_rank.hpp"

namespace hookline {
namespace {

TEST(Bootstrap, DeathDuringInitIsReported) { testing::expect_deaths_reported({.backend = "shm"}); }

TEST(Bootstrap, DeathDuringSplitIsReported) { testing::expect_deaths_reported({.backend = "shm", .in_split = true}); }

}  // namespace
}  // namespace hookline
