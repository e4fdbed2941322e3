// The contract suite as a program of MPI's: mpirun starts as many ranks as the largest group needs, and all of them run
// the same tests; the first ones are the group of a test, the others wait for its end.
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

// A rank may have to wait for its turn on a busy machine, again and again; only one that hangs should be noticed.
constexpr Milliseconds kTimeout{120'000};

/// Returns when all processes have come here. They sleep meanwhile: those that are not in a group would otherwise take
/// turns on the cores from those that are, as MPI's own waiting does.
void meet() {
  MPI_Request all = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &all);
  for (int done = 0; done == 0; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    MPI_Test(&all, &done, MPI_STATUS_IGNORE);
  }
}

/// What went wrong on the ranks, in rank order; every process is told.
std::string gather_failures(const std::string& own) {
  meet();
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

/// The folder where layered groups meet, if there are to be any: ranks of one host would be a shm group.
const char* meeting_place() { return std::getenv("HOOKLINE_TEST_STORE"); }

void run_as_rank(const std::string& backend, MPI_Comm comm, int rank, int ranks, const RankBody& body,
                 std::string& failure) {
  Clock::time_point since = Clock::now();
  const auto fail = [&](const std::string& what) {
    const auto passed = std::chrono::duration_cast<Milliseconds>(Clock::now() - since);
    failure =
        fmt::format("rank {}, after {} ms {}: {}\n", rank, passed.count(), what, describe(std::current_exception()));
  };
  try {
    EngineSetting setting{.store = nullptr, .rank = rank, .size = ranks, .timeout = kTimeout};
    setting.options["communicator"] = std::to_string(MPI_Comm_c2f(comm));
    if (backend == "layered") {
      static std::map<int, int> groups;  // of each size, as not all ranks are in all of them
      const std::string file = fmt::format("{}/{}-{}", meeting_place(), ranks, ++groups[ranks]);
      setting.store = std::make_shared<FileStore>(file, ranks);
      setting.options["engine"] = "mpi";
    }
    const auto group = make_group(make_backend(backend, setting), kTimeout);
    since = Clock::now();
    try {
      body(*group);
    } catch (...) {
      fail("in the group");
      group->abort("the test failed on this rank");
    }
  } catch (...) {
    fail("of making the group");
  }
}

void spawn_mpi(const std::string& backend, int ranks, const RankBody& body) {
  int size = 0;
  int rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (ranks > size) throw std::runtime_error(fmt::format("mpirun started {} ranks, and {} are needed", size, ranks));
  static std::map<int, MPI_Comm> comms;  // of the first ranks, by their number
  const auto [comm, is_new] = comms.try_emplace(ranks, MPI_COMM_NULL);
  if (is_new) MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &comm->second);
  std::string failure;
  if (rank < ranks) run_as_rank(backend, comm->second, rank, ranks, body, failure);
  const std::string failures = gather_failures(failure);
  if (!failures.empty()) throw std::runtime_error(failures);
}

}  // namespace

std::vector<World> group_worlds() {
  const auto on = [](const std::string& backend) {
    return World{backend, [backend](int ranks, const RankBody& body) { spawn_mpi(backend, ranks, body); }};
  };
  std::vector<World> worlds = {on("mpi")};
  if (meeting_place()) worlds.push_back(on("layered"));
  return worlds;
}

}  // namespace hookline::testing

#ifdef MPICH_VERSION
// MPICH must not be finalised while a thread is in one of its calls, and the engine looks at the messages of groups
// that failed for some seconds more.
void await_engine() {
  namespace fs = std::filesystem;
  const auto is_engine = [](const fs::path& task) {
    std::string name;
    std::getline(std::ifstream(task / "comm"), name);
    return name == "hookline-mpi";
  };
  const fs::directory_iterator end;
  while (std::find_if(fs::directory_iterator("/proc/self/task"), end, is_engine) != end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}
#else
void await_engine() {}
#endif

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  unsigned seed = std::random_device{}();
  MPI_Bcast(&seed, 1, MPI_UNSIGNED, 0, MPI_COMM_WORLD);
  ::setenv("HOOKLINE_TEST_SEED", std::to_string(seed).c_str(), 0);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) GTEST_FLAG_SET(brief, true);  // each reports its own failures, and one of them what was run
  ::testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  await_engine();
  MPI_Finalize();
  return result;
}
