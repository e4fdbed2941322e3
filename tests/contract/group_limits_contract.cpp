// The largest groups and the largest tensors.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include <gmock/gmock.h>

#include <hookline/backend/shm.hpp>
#include <hookline/backend/threads.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/tcp_store.hpp>

#include "contract/group_limits.hpp"

namespace hookline::testing {
namespace {

class GroupLimits : public GroupContract {};

TEST_P(GroupLimits, SixtyFourRanks) { GetParam().spawn(64, check_large_group); }

INSTANTIATE_TEST_SUITE_P(Fixtures, GroupLimits,
                         ::testing::Values(threads_fixture(), private_threads_fixture(), shm_fixture(),
                                           memory_transport_fixture()),
                         [](const auto& test) { return test.param.name; });

// `make soak` tests the largest local groups: 512 processes take half a minute on two cores.
int max_ranks() { return full_matrix() ? 512 : 128; }

// Serves a TCPStore in a child process until destroyed. The parent starts no thread, so it may fork the ranks.
class StoreProcess {
 public:
  StoreProcess() {
    std::array<int, 2> port{}, stop{};
    require(pipe(port.data()) == 0 && pipe(stop.data()) == 0, "pipe");
    stop_ = stop[1];
    pid_ = fork();
    if (pid_ == 0) {
      close(stop[1]);
      const TCPStore server({.is_master = true, .wait_for_workers = false});
      const std::uint16_t number = server.port();
      char end = 0;
      const bool served = write(port[1], &number, sizeof number) == sizeof number && read(stop[0], &end, 1) == 0;
      _exit(served ? 0 : 1);
    }
    require(pid_ > 0 && read(port[0], &port_, sizeof port_) == sizeof port_, "the server process");
    for (const int fd : {port[0], port[1], stop[0]}) close(fd);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;
  ~StoreProcess() {
    close(stop_);
    waitpid(pid_, nullptr, 0);
  }

  std::uint16_t port() const noexcept { return port_; }

 private:
  pid_t pid_ = -1;
  int stop_ = -1;
  std::uint16_t port_ = 0;
};

TEST(LargestGroups, Processes) {
  const StoreProcess server;  // not a FileStore: 512 processes that poll it use up two cores
  const auto make = [port = server.port()](const std::shared_ptr<Store>&, int rank, int ranks) {
    const Milliseconds timeout = std::chrono::minutes(5);
    const auto store = std::make_shared<TCPStore>(TCPStoreOptions{.port = port, .timeout = timeout});
    return make_group(make_shm_backend(store, rank, ranks, timeout), timeout);
  };
  processes_fixture("shm", MakeGroup(make)).spawn(max_ranks(), check_large_group);
}

TEST(LargestGroups, Threads) { threads_fixture().spawn(max_ranks(), check_large_group); }

TEST(LargestGroups, ThreadsWithPrivateMemory) { private_threads_fixture().spawn(max_ranks(), check_large_group); }

TEST(LargestGroups, RejectsMoreThan512Ranks) {
  EXPECT_THAT([] { make_threads_backends(513); },
              ::testing::ThrowsMessage<InvalidArgument>("threads group: expected 1 to 512 ranks, got 513"));
}

// Sanitizers would need many times the memory and time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kLargeCount = std::int64_t{1} << 24;
#else
constexpr std::int64_t kLargeCount = std::int64_t{1} << 31;
#endif

// More than 2 GiB, which overflows 32-bit counters.
void sum_more_than_two_gibibytes(ProcessGroup& group, Layout layout) {
  constexpr std::int64_t kCount = kLargeCount + 4099;
  const Tensor t = make_tensor(group, kCount, DType::u8, layout);
  std::uint8_t* const data = t.data<std::uint8_t>();
  std::memset(data, 0, kCount);
  const std::vector<std::int64_t> indices = {0, kCount / 2 - 1, kCount / 2, kLargeCount - 1, kLargeCount, kCount - 1};
  for (const std::int64_t i : indices) data[i] = static_cast<std::uint8_t>(i % 50 + group.rank() + 1);
  group.allreduce(t)->wait();
  for (const std::int64_t i : indices) EXPECT_EQ(data[i], 2 * (i % 50) + 3) << i;
  EXPECT_EQ(std::count(data, data + kCount, 0), kCount - 6);
}

TEST(LargeCalls, InPlaceBetweenProcesses) {
  shm_fixture().spawn(2, [](ProcessGroup& group) { sum_more_than_two_gibibytes(group, Layout::shared); });
}

TEST(LargeCalls, InChunksBetweenThreads) {
  private_threads_fixture().spawn(2, [](ProcessGroup& group) { sum_more_than_two_gibibytes(group, Layout::plain); });
}

}  // namespace
}  // namespace hookline::testing
