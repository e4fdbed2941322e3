// Death of a rank while a gloo or hierarchical group is being created.
#include <gtest/gtest.h>

#include "harness/killed_rank.hpp"

namespace hookline {
namespace {

class EngineBootstrap : public ::testing::Test {
 protected:
  const testing::Killing gloo_ = {.backend = "gloo", .options = {{"address", "127.0.0.1"}}};
  const testing::Killing layered_ = {
      .backend = "layered", .options = {{"engine", "gloo"}, {"address", "127.0.0.1"}}, .ranks = 4, .hosts = 2};
};

TEST_F(EngineBootstrap, ADeathInInitIsTold) { testing::expect_deaths_are_told(gloo_); }

TEST_F(EngineBootstrap, ADeathInSplitIsTold) {
  testing::Killing killing = gloo_;
  killing.in_split = true;
  testing::expect_deaths_are_told(killing);
}

TEST_F(EngineBootstrap, ADeathInInitIsToldOnOtherHosts) { testing::expect_deaths_are_told(layered_); }

TEST_F(EngineBootstrap, ADeathInSplitIsToldOnOtherHosts) {
  testing::Killing killing = layered_;
  killing.in_split = true;
  testing::expect_deaths_are_told(killing);
}

}  // namespace
}  // namespace hookline
