// Failures of mpi groups during transfers: later groups work, and nothing hangs.
#include <mpi.h>

#include <array>
#include <optional>

#include <gmock/gmock.h>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/file_store.hpp>

#include "harness/spawn.hpp"
#include "harness/temp_directory.hpp"

namespace hookline::testing {
namespace {

constexpr int kRanks = 3;
constexpr std::int64_t kLargeCount = 2'000'000;

GroupFixture mpi_fixture() { return group_fixtures().front(); }

void expect_working_group() {
  mpi_fixture().spawn(kRanks, [](ProcessGroup& group) {
    const Tensor t = Tensor::full({kLargeCount}, group.rank() + 1);
    group.allreduce(t)->wait();
    EXPECT_EQ(t.data<float>()[kLargeCount - 1], 6.0f);
  });
}

TEST(MpiFaults, AbortDuringTransfer) {
  for (int round = 0; round < 3; ++round) {
    mpi_fixture().spawn(kRanks, [](ProcessGroup& group) {
      std::vector<Tensor> tensors;
      std::vector<WorkPtr> works;
      for (int i = 0; i < 6; ++i) {
        tensors.push_back(Tensor::zeros({kLargeCount}));
        works.push_back(group.allreduce(tensors.back()));
      }
      if (group.rank() == 1) {
        works.front()->wait();
        group.abort("enough of this");
      }
      for (const WorkPtr& work : works) {
        try {
          work->wait();
        } catch (const Aborted& e) {
          EXPECT_THAT(e.what(), ::testing::HasSubstr("enough of this"));
        }
      }
      EXPECT_THROW(group.barrier()->wait(), Aborted);
    });
    expect_working_group();
  }
}

TEST(MpiFaults, MissingRankInLargeOperation) {
  mpi_fixture().spawn(kRanks, [](ProcessGroup& group) {
    group.barrier()->wait();
    const Tensor t = Tensor::zeros({kLargeCount});
    if (group.rank() == 2) {
      EXPECT_THROW(group.recv(t, 0)->wait(), Aborted);
      return;
    }
    EXPECT_THAT([&] { group.allreduce(t, {.timeout = Milliseconds(100)})->wait(); },
                ::testing::ThrowsMessage<Error>(::testing::HasSubstr("rank 2 did not join")));
  });
  expect_working_group();
}

TEST(MpiFaults, UnmatchedLargeSend) {
  mpi_fixture().spawn(kRanks, [](ProcessGroup& group) {
    group.barrier()->wait();
    const Tensor t = Tensor::zeros({kLargeCount});
    if (group.rank() == 0) {
      const WorkPtr sent = group.send(t, 1);
      group.shutdown();
      EXPECT_THROW(sent->wait(), Error);
    }
  });
  expect_working_group();
}

// After a timeout of one rank, a late rank must time out too: MPI's own collective would wait forever.
TEST(MpiFaults, LateRankTimesOutToo) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::array<char, 256> path{};
  const std::optional<test::TempDirectory> directory =
      rank == 0 ? std::make_optional<test::TempDirectory>() : std::nullopt;
  if (directory) (*directory / "store").copy(path.data(), path.size() - 1);
  MPI_Bcast(path.data(), static_cast<int>(path.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Comm two_ranks = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &two_ranks);
  if (rank < 2) {
    TransportConfig config{
        .store = std::make_shared<FileStore>(path.data()), .rank = rank, .size = 2, .timeout = Milliseconds(50)};
    config.options["communicator"] = std::to_string(MPI_Comm_c2f(two_ranks));
    if (rank == 1) MPI_Barrier(two_ranks);  // after rank 0 has timed out
    EXPECT_THAT([&] { make_backend("mpi", config); },
                ::testing::ThrowsMessage<Timeout>(::testing::HasSubstr("rank 1 did not join within 50 ms")));
    if (rank == 0) MPI_Barrier(two_ranks);
    MPI_Comm_free(&two_ranks);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiFaults, RejectsInvalidOptionsAndSizes) {
  const auto expect_rejected = [](TransportConfig config, const std::string& text) {
    EXPECT_THAT([&] { make_backend("mpi", config); },
                ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr(text)));
  };
  TransportConfig config;
  expect_rejected(config, "wrong number of MPI processes: expected 1, got ");
  config.options["communicator"] = "x";
  expect_rejected(config, "expected a handle from MPI_Comm_c2f (py2f() of mpi4py), got 'x'");
  config.options = {{"interface", "eth0"}};
  expect_rejected(config, "unknown option: expected 'communicator', got 'interface'");
}

TEST(MpiFaults, SingleRankCommunicator) {
  TransportConfig config;
  config.options["communicator"] = std::to_string(MPI_Comm_c2f(MPI_COMM_SELF));
  const auto group = make_group(make_backend("mpi", config), std::chrono::seconds(10));
  const Tensor t = Tensor::full({5}, 2);
  group->allreduce(t)->wait();
  EXPECT_EQ(t.data<float>()[4], 2.0f);
}

}  // namespace
}  // namespace hookline::testing
