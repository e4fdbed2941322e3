// Death of a rank while a gloo or hierarchical group is being created.
#include <gtest/gtest.h>

#include "harness/killed_rank.hpp"

namespace hookline {
namespace {

class TransportBootstrap : public ::testing::Test {
 protected:
  const testing::KillScenario gloo_ = {.backend = "gloo", .options = {{"address", "127.0.0.1"}}};
  const testing::KillScenario hierarchical_ = {
      .backend = "hierarchical", .options = {{"transport", "gloo"}, {"address", "127.0.0.1"}}, .ranks = 4, .hosts = 2};
};

TEST_F(TransportBootstrap, DeathDuringInitIsReported) { testing::expect_deaths_reported(gloo_); }

TEST_F(TransportBootstrap, DeathDuringSplitIsReported) {
  testing::KillScenario killing = gloo_;
  killing.in_split = true;
  testing::expect_deaths_reported(killing);
}

TEST_F(TransportBootstrap, DeathDuringInitIsReportedOnOtherHosts) { testing::expect_deaths_reported(hierarchical_); }

TEST_F(TransportBootstrap, DeathDuringSplitIsReportedOnOtherHosts) {
  testing::KillScenario killing = hierarchical_;
  killing.in_split = true;
  testing::expect_deaths_reported(killing);
}

}  // namespace
}  // namespace hookline
