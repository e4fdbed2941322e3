// Forks the ranks; the victim's store kills the victim.
#include "harness/killed_rank.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>
#include <hookline/group/init.hpp>
#include <hookline/store/file_store.hpp>

#include "harness/temp_directory.hpp"

namespace hookline::testing {
namespace {

constexpr int kMaxRanks = 16;
constexpr auto kTimeout = std::chrono::seconds(60);

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

// Shared memory in which the ranks report to the test.
struct Board {
  std::atomic<std::int64_t> died_at;
  std::atomic<int> announced;
  std::atomic<int> reported;
  std::atomic<bool> victim_survived;
  struct Rank {
    std::atomic<std::int64_t> reported_at;
    std::array<char, 16> error;
    std::array<char, 400> text;
    std::array<int, kMaxRanks> ranks;
    std::size_t count;
  };
  std::array<Rank, kMaxRanks> ranks;
};

void copy(const std::string& from, char* to, std::size_t capacity) {
  std::memcpy(to, from.data(), std::min(from.size(), capacity - 1));
}

constexpr std::int64_t kMaxExitDelayUs = 5'000'000;  // microseconds

constexpr const char* kAnnounced = "bootstrap/process/";

/// Kills this process before a chosen store call, but not before all ranks are announced in the store: a rank that
/// joins after the failure would belong to the next attempt.
class KillingStore final : public Store {
 public:
  KillingStore(std::shared_ptr<Store> store, const KillScenario& scenario, int rank, Board& board)
      : store_(std::move(store)),
        ranks_(scenario.ranks),
        calls_left_(rank == scenario.victim ? scenario.kill_at_call : std::numeric_limits<int>::max()),
        in_init_(!scenario.in_split),
        board_(board) {}

  void arm() { armed_ = true; }

  std::string describe() const override { return store_->describe(); }
  void set(const std::string& key, const std::string& value) override {
    kill_if_due();
    store_->set(key, value);
    if (key.find(kAnnounced) == std::string::npos) return;
    board_.announced.fetch_add(1);
    armed_ = in_init_;
  }
  std::string get(const std::string& key) override { return count_call().get(key); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return count_call().add(key, amount); }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override { count_call().wait(keys, timeout); }
  bool check(const std::vector<std::string>& keys) override { return count_call().check(keys); }
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override {
    return count_call().compare_set(key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return count_call().delete_key(key); }
  std::int64_t num_keys() override { return count_call().num_keys(); }

 private:
  Store& count_call() {
    kill_if_due();
    return *store_;
  }
  void kill_if_due() {
    if (!armed_ || --calls_left_ > 0) return;
    while (board_.announced < ranks_) std::this_thread::yield();
    board_.died_at = now_us();
    kill(getpid(), SIGKILL);
    pause();
  }

  const std::shared_ptr<Store> store_;
  const int ranks_;
  int calls_left_;
  const bool in_init_;
  bool armed_ = false;
  Board& board_;
};

std::string type_of(const Error& e) {
  if (dynamic_cast<const PeerLost*>(&e)) return "PeerLost";
  if (dynamic_cast<const Timeout*>(&e)) return "Timeout";
  if (dynamic_cast<const Aborted*>(&e)) return "Aborted";
  if (dynamic_cast<const Mismatch*>(&e)) return "Mismatch";
  if (dynamic_cast<const ResourceError*>(&e)) return "ResourceError";
  return "Error";
}

void make_groups(const KillScenario& scenario, int rank, const std::string& path, Board& board) {
  const auto store = std::make_shared<KillingStore>(std::make_shared<FileStore>(path), scenario, rank, board);
  const auto group = init_process_group({.backend = scenario.backend,
                                         .rank = rank,
                                         .world_size = scenario.ranks,
                                         .timeout = kTimeout,
                                         .store = store,
                                         .backend_options = scenario.options});
  if (scenario.in_split) {
    store->arm();
    group->split(0, -rank);  // reversed order: errors must name the ranks of `group`
  }
  if (rank == scenario.victim) {
    board.victim_survived = true;
    board.died_at = now_us();
    kill(getpid(), SIGKILL);
    pause();
  }
  group->barrier()->wait();
}

[[noreturn]] void run_rank(const KillScenario& scenario, int rank, const std::string& path, Board& board) {
  Board::Rank& mine = board.ranks[static_cast<std::size_t>(rank)];
  std::string error = "none";
  std::string text;
  try {
    make_groups(scenario, rank, path, board);
  } catch (const Error& e) {
    error = type_of(e);
    text = describe(std::current_exception());
    for (const int r : e.ranks()) {
      if (mine.count < mine.ranks.size()) mine.ranks[mine.count++] = r;
    }
  } catch (const std::exception& e) {
    error = "foreign";
    text = e.what();
  }
  copy(error, mine.error.data(), mine.error.size());
  copy(text, mine.text.data(), mine.text.size());
  mine.reported_at = now_us();
  // A survivor that exits would be reported as dead, too: it stays until all survivors have their error.
  const int survivors = scenario.ranks - 1;
  board.reported.fetch_add(1);
  while (board.reported < survivors && now_us() - mine.reported_at < kMaxExitDelayUs) std::this_thread::yield();
  _exit(0);
}

pid_t fork_checked() {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  return child;
}

// The exit of a PID namespace's first process kills all others, so a helper process is the first, not a rank.
pid_t start_host(const std::vector<int>& ranks, bool own_host, const std::function<void(int rank)>& run) {
  const pid_t host = fork_checked();
  if (host != 0) return host;
  if (own_host && unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(1);
  const pid_t first = own_host ? fork() : -1;
  if (first == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a stopped test leaves no process behind
    pause();
    _exit(0);
  }
  std::vector<pid_t> children;
  for (const int rank : ranks) {
    const pid_t child = fork();
    if (child == 0) run(rank);
    children.push_back(child);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  if (first > 0) {
    kill(first, SIGKILL);
    waitpid(first, nullptr, 0);
  }
  _exit(0);
}

}  // namespace

std::vector<Survivor> kill_rank(const KillScenario& scenario) {
  void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (memory) Board{};
  const test::TempDirectory directory;
  std::vector<pid_t> hosts;
  const int per_host = (scenario.ranks + scenario.hosts - 1) / scenario.hosts;
  for (int first = 0; first < scenario.ranks; first += per_host) {
    std::vector<int> ranks;
    for (int r = first; r < std::min(first + per_host, scenario.ranks); ++r) ranks.push_back(r);
    hosts.push_back(start_host(ranks, scenario.hosts > 1,
                               [&](int rank) { run_rank(scenario, rank, directory / "store", *board); }));
  }
  for (const pid_t host : hosts) waitpid(host, nullptr, 0);
  std::vector<Survivor> survivors;
  for (int r = 0; r < scenario.ranks && !board->victim_survived; ++r) {
    if (r == scenario.victim) continue;
    const Board::Rank& rank = board->ranks[static_cast<std::size_t>(r)];
    survivors.push_back({.rank = r,
                         .error = rank.error.data(),
                         .text = rank.text.data(),
                         .ranks = {rank.ranks.begin(), rank.ranks.begin() + static_cast<std::ptrdiff_t>(rank.count)},
                         .seconds = static_cast<double>(rank.reported_at - board->died_at) / 1e6});
  }
  munmap(memory, sizeof(Board));
  return survivors;
}

void expect_deaths_reported(KillScenario scenario) {
  constexpr int kMaxCalls = 200;
  double slowest = 0;
  int reported_late = 0;
  int all = 0;
  for (scenario.kill_at_call = 1; scenario.kill_at_call < kMaxCalls; ++scenario.kill_at_call) {
    scenario.victim = scenario.kill_at_call % scenario.ranks;
    const std::vector<Survivor> survivors = kill_rank(scenario);
    if (survivors.empty()) break;
    for (const Survivor& survivor : survivors) {
      const auto where = ::testing::Message() << "rank " << survivor.rank << ", victim " << scenario.victim
                                              << " at call " << scenario.kill_at_call << ", after " << survivor.seconds
                                              << " s: " << survivor.error << ": " << survivor.text;
      EXPECT_EQ(survivor.error, "PeerLost") << where;
      EXPECT_EQ(survivor.ranks, std::vector{scenario.victim}) << where;
      EXPECT_LT(survivor.seconds, 20) << where;
      slowest = std::max(slowest, survivor.seconds);
      reported_late += survivor.seconds > 1 ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GT(scenario.kill_at_call, 5) << "the victim was killed in too few runs";
  std::printf("%d survivors, slowest error after %.3f s, %d errors after more than 1 s\n", all, slowest, reported_late);
}

}  // namespace hookline::testing
