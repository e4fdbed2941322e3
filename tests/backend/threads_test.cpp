// The threads backend.
#include <hookline/backend/threads.hpp>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

TEST(Threads, LateSubgroupMemberSeesDepartedRank) {
  const auto ranks = make_threads_backends(2);
  const std::chrono::seconds timeout(20);
  const auto subset = [&](std::size_t rank) { return ranks[rank]->new_subgroup({0, 1}, "subset", timeout); };
  subset(0)->shutdown();
  const auto late = subset(1);
  EXPECT_THAT([&] { late->start({.type = OpType::barrier, .inputs = {}, .outputs = {}}, 0, timeout)->wait(); },
              ::testing::ThrowsMessage<PeerLost>(::testing::HasSubstr("rank 0 left the group")));
}

TEST(Threads, ForwardedAbortNamesTheOrigin) {
  const auto ranks = make_threads_backends(3);
  const auto barrier_ranks = [&](std::size_t rank) -> std::vector<int> {
    try {
      ranks[rank]->start({.type = OpType::barrier}, 0, std::chrono::seconds(20))->wait();
    } catch (const Aborted& e) {
      return e.ranks();
    }
    return {};
  };
  ranks[1]->abort("out of memory");
  EXPECT_THAT(barrier_ranks(0), ::testing::ElementsAre(1));
  EXPECT_THAT(barrier_ranks(2), ::testing::ElementsAre(1));  // rank 0 has failed, too, and is checked first
}

}  // namespace
}  // namespace hookline
