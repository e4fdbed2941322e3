// Death of processes: every survivor gets an error that names the dead rank within a second and can create a new group;
// no resources leak.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/init.hpp>
#include <hookline/store/file_store.hpp>

#include "harness/temp_directory.hpp"

namespace hookline {
namespace {

using std::chrono::seconds;

// Shared memory in which the forked ranks report their progress to the test.
struct Board {
  std::atomic<int> steps;
  std::atomic<std::int64_t> killed_at;
  std::atomic<std::int64_t> reported_at[4];
  std::atomic<int> wrong;
};

std::int64_t now_ms() { return std::chrono::duration_cast<Milliseconds>(Clock::now().time_since_epoch()).count(); }

Board* make_board() {
  void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Board{};
}

std::shared_ptr<ProcessGroup> join(const std::string& path, int rank, int size) {
  return init_process_group(
      {.rank = rank, .world_size = size, .timeout = seconds(60), .store = std::make_shared<FileStore>(path)});
}

// Runs a rank that communicates until the victim's death is reported.
[[noreturn]] void survive(const std::string& path, int rank, int size, int victim, Board& board) {
  auto group = join(path, rank, size);
  const Tensor plain = Tensor::zeros({120'000});
  const Tensor shared = group->empty({120'000});
  try {
    for (int i = 0;; ++i) {
      group->allreduce(i % 3 == 0 ? plain : i % 3 == 1 ? shared : plain.slice(0, 0, 10))->wait();
      board.steps.fetch_add(1);
    }
  } catch (const PeerLost& e) {
    board.reported_at[rank] = now_ms();
    if (std::string(e.what()).find(fmt::format("rank {} died", victim)) == std::string::npos) board.wrong.fetch_add(1);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
    board.wrong.fetch_add(1);
  }
  try {
    group->barrier()->wait();
    board.wrong.fetch_add(1);
  } catch (const PeerLost&) {  // the same cause again
  }
  group->abort();
  group.reset();
  // The survivors can make a new group.
  std::vector<int> alive;
  for (int r = 0; r < size; ++r) {
    if (r != victim) alive.push_back(r);
  }
  const auto own = std::find(alive.begin(), alive.end(), rank) - alive.begin();
  join(path + ".again", static_cast<int>(own), static_cast<int>(alive.size()))->barrier()->wait();
  _exit(0);
}

TEST(ShmFailure, DeathIsReportedWithinOneSecond) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 8; ++round) {
    const test::TempDirectory directory;
    Board& board = *make_board();
    constexpr int kSize = 3;
    const int victim = static_cast<int>(random() % kSize);
    std::vector<pid_t> ranks;
    for (int r = 0; r < kSize; ++r) {
      const pid_t child = fork();
      if (child == 0) survive(directory / "store", r, kSize, victim, board);
      ranks.push_back(child);
    }
    const int kill_at = 1 + static_cast<int>(random() % 300);
    const auto deadline = Clock::now() + seconds(60);
    while (board.steps < kill_at && Clock::now() < deadline) std::this_thread::yield();
    board.killed_at = now_ms();
    kill(ranks[static_cast<std::size_t>(victim)], SIGKILL);
    for (int r = 0; r < kSize; ++r) {
      int status = 0;
      waitpid(ranks[static_cast<std::size_t>(r)], &status, 0);
      if (r == victim) continue;
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << r;
      EXPECT_LT(board.reported_at[r] - board.killed_at, 1000) << "rank " << r;
    }
    EXPECT_EQ(board.wrong, 0);
    munmap(&board, sizeof board);
  }
}

TEST(ShmFailure, DepartureNamesTheRank) {
  const test::TempDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    join(directory / "store", 1, 2)->barrier()->wait();
    _exit(0);
  }
  const auto group = join(directory / "store", 0, 2);
  group->barrier()->wait();
  try {
    group->barrier()->wait();
    FAIL();
  } catch (const PeerLost& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("rank 1"));
  }
  waitpid(child, nullptr, 0);
}

TEST(ShmFailure, ForkedChildIsRejected) {
  const test::TempDirectory directory;
  const auto group = join(directory / "store", 0, 1);
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      group->barrier()->wait();
    } catch (const InvalidArgument& e) {
      code = std::string(e.what()).find("fork()") == std::string::npos ? 2 : 0;
    }
    const_cast<std::shared_ptr<ProcessGroup>&>(group).reset();
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_NO_THROW(group->barrier()->wait()) << "the parent's group works";
}

TEST(ShmMemory, OversizedAllocationReportsTheSize) {
  const test::TempDirectory directory;
  const auto group = join(directory / "store", 0, 1);
  EXPECT_THAT([&] { (void)group->empty({std::int64_t{1} << 41}, DType::u8); },
              testing::ThrowsMessage<ResourceError>(testing::HasSubstr("2199023255552 bytes")));
  EXPECT_EQ(group->empty({4}).numel(), 4);
}

TEST(ShmMemory, ViewsOutliveTheGroupAndFreedBuffersAreReturned) {
  const auto shared_kilobytes = [] {
    std::ifstream file("/proc/self/status");
    std::string line;
    while (std::getline(file, line)) {
      if (line.starts_with("RssShmem:")) return std::stol(line.substr(9));
    }
    return -1L;
  };
  const test::TempDirectory directory;
  auto group = join(directory / "store", 0, 1);
  const long before = shared_kilobytes();
  Tensor kept;
  for (int i = 0; i < 50; ++i) {
    kept = group->empty({4 << 20}, DType::u8);
    kept.fill(i);
  }
  EXPECT_LT(shared_kilobytes() - before, 3 * 4096);
  group.reset();
  EXPECT_EQ(kept.data<const std::uint8_t>()[(4 << 20) - 1], 49);
}

}  // namespace
}  // namespace hookline
