// Topology: ranks by host, and the owners of slices.
#include "backend/hierarchical/topology.hpp"

#include <gmock/gmock.h>

namespace hookline::hierarchical {
namespace {

using ::testing::ElementsAre;

TEST(Topology, SortsRanksByHostInTheOrderOfFirstRanks) {
  const Topology t = make_topology({"b", "a", "b", "a"}, 3);
  EXPECT_THAT(t.hosts, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_EQ(t.host, 1U);
  EXPECT_EQ(t.local_rank, 1U);
  EXPECT_TRUE(t.is_uniform());
  EXPECT_THAT(t.owners(0), ElementsAre(0, 1));
  EXPECT_THAT(t.owners(1), ElementsAre(2, 3));
  EXPECT_EQ(t.host_of(2), 0U);
  EXPECT_EQ(t.local_rank_of(2), 1U);
}

TEST(Topology, SliceCountIsSmallestHostSize) {
  const Topology last = make_topology({"a", "a", "a", "b", "b"}, 2);
  EXPECT_EQ(last.slices, 2U);
  EXPECT_EQ(last.max_local_size, 3U);
  EXPECT_FALSE(last.is_uniform());
  EXPECT_FALSE(last.owns_slice());
  EXPECT_TRUE(make_topology({"a", "a", "a", "b", "b"}, 4).owns_slice());
}

TEST(Topology, SubgroupRanksFollowTheGivenOrder) {
  const Topology whole = make_topology({"a", "a", "b", "b"}, 3);
  const Topology part = sub_topology(whole, {3, 1, 2}, 0);
  EXPECT_THAT(part.hosts, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_EQ(part.host, 0U);
  EXPECT_EQ(sub_topology(whole, {2, 3}, 1).hosts.size(), 1U);
}

}  // namespace
}  // namespace hookline::hierarchical
