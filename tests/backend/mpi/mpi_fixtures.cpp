// The contract suite under mpirun. All processes run the same tests: the first ranks form the group of a test, the
// others wait for its end.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <hookline/backend/make_backend.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/file_store.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

// Long enough for a busy machine that delays ranks: only a hang should exceed this timeout.
constexpr Milliseconds kTimeout{120'000};

/// A barrier of all processes that sleeps between polls. MPI_Barrier would spin, and take the cores from the ranks of
/// the running test.
void sleeping_barrier() {
  MPI_Request all = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &all);
  for (int done = 0; done == 0; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    MPI_Test(&all, &done, MPI_STATUS_IGNORE);
  }
}

/// Returns the failures of all ranks, in rank order, on every process.
std::string gather_failures(const std::string& own) {
  sleeping_barrier();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> begins(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), ' ');
  if (all.empty()) return all;
  MPI_Allgatherv(own.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR, MPI_COMM_WORLD);
  return all;
}

/// Returns the directory for the stores of hierarchical groups. Null if all ranks share a host: hierarchical groups
/// would then use only shm.
const char* store_directory() { return std::getenv("HOOKLINE_TEST_STORE"); }

void run_as_rank(const std::string& backend, MPI_Comm comm, int rank, int ranks, const RankBody& body,
                 std::string& failure) {
  Clock::time_point phase_start = Clock::now();
  const auto fail = [&](const std::string& what) {
    const auto passed = std::chrono::duration_cast<Milliseconds>(Clock::now() - phase_start);
    failure =
        fmt::format("rank {}, after {} ms {}: {}\n", rank, passed.count(), what, describe(std::current_exception()));
  };
  try {
    TransportConfig config{.store = nullptr, .rank = rank, .size = ranks, .timeout = kTimeout};
    config.options["communicator"] = std::to_string(MPI_Comm_c2f(comm));
    if (backend == "hierarchical") {
      static std::map<int, int> groups;  // by size, since a rank is not in every group
      const std::string file = fmt::format("{}/{}-{}", store_directory(), ranks, ++groups[ranks]);
      config.store = std::make_shared<FileStore>(file, ranks);
      config.options["transport"] = "mpi";
    }
    const auto group = make_group(make_backend(backend, config), kTimeout);
    phase_start = Clock::now();
    try {
      body(*group);
    } catch (...) {
      fail("in the group");
      group->abort("the test failed on this rank");
    }
  } catch (...) {
    fail("of group creation");
  }
}

void spawn_mpi(const std::string& backend, int ranks, const RankBody& body) {
  int size = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (ranks > size) throw std::runtime_error(fmt::format("mpirun started {} ranks, and {} are needed", size, ranks));
  static std::map<int, MPI_Comm> comms;  // by size
  const auto [comm, is_new] = comms.try_emplace(ranks, MPI_COMM_NULL);
  if (is_new) MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &comm->second);
  std::string failure;
  if (rank < ranks) run_as_rank(backend, comm->second, rank, ranks, body, failure);
  const std::string failures = gather_failures(failure);
  if (!failures.empty()) throw std::runtime_error(failures);
}

}  // namespace

std::vector<GroupFixture> group_fixtures() {
  const auto fixture_for = [](const std::string& backend) {
    return GroupFixture{backend, [backend](int ranks, const RankBody& body) { spawn_mpi(backend, ranks, body); }};
  };
  std::vector<GroupFixture> fixtures = {fixture_for("mpi")};
  if (store_directory()) fixtures.push_back(fixture_for("hierarchical"));
  return fixtures;
}

}  // namespace hookline::testing

#ifdef MPICH_VERSION
// MPICH must not be finalized during an MPI call of another thread, and the transport drains failed groups for some
// seconds.
void wait_for_transport_thread() {
  namespace fs = std::filesystem;
  const auto is_transport_thread = [](const fs::path& task) {
    std::string name;
    std::getline(std::ifstream(task / "comm"), name);
    return name == "hookline-mpi";
  };
  const fs::directory_iterator end;
  while (std::find_if(fs::directory_iterator("/proc/self/task"), end, is_transport_thread) != end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}
#else
void wait_for_transport_thread() {}
#endif

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  unsigned seed = std::random_device{}();
  MPI_Bcast(&seed, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
  ::setenv("HOOKLINE_TEST_SEED", std::to_string(seed).c_str(), 0);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) GTEST_FLAG_SET(brief, true);  // rank 0 alone reports passed tests
  ::testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  wait_for_transport_thread();
  MPI_Finalize();
  return result;
}
