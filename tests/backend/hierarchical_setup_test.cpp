// Creation of a hierarchical group: no rank returns before all ranks have created their sub-backends.
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include <hookline/backend/threads.hpp>
#include <hookline/group/process_group.hpp>

#include "backend/hierarchical/make_hierarchical.hpp"

namespace hookline::hierarchical {
namespace {

// Ranks 0 and 1 share a host, rank 2 is on another: rank 1 owns no slice and creates fewer sub-backends.
TEST(HierarchicalSetup, RankWithFewerSubgroupsWaits) {
  const auto global_backends = make_threads_backends(3);
  std::promise<void> created;
  const std::future<void> created_on_rank_1 = created.get_future();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto all = global_backends[static_cast<std::size_t>(rank)];
      const MakeSubBackend part = [&](const std::vector<int>& ranks, const std::string& name, Milliseconds timeout) {
        if (rank == 2 && name == "slice0") {
          EXPECT_EQ(created_on_rank_1.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
        }
        return all->new_subgroup(ranks, name, timeout);
      };
      const auto group = make_group(
          make_hierarchical(make_topology({"a", "a", "b"}, rank), rank, {part, part}, std::chrono::seconds(30)),
          std::chrono::seconds(30));
      if (rank == 1) created.set_value();
      const Tensor t = Tensor::full({10}, rank);
      group->allreduce(t)->wait();
      EXPECT_EQ(t.data<float>()[9], 3.0f);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace hookline::hierarchical
