// The shm backend's use of host resources, and its access control.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/backend/shm.hpp>
#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/group/init.hpp>
#include <hookline/store/file_store.hpp>
#include <hookline/store/memory_store.hpp>

#include "backend/host.hpp"
#include "backend/shm/descriptor_limit.hpp"
#include "backend/shm/region.hpp"
#include "backend/store_allgather.hpp"
#include "harness/spawn.hpp"
#include "harness/temp_directory.hpp"

namespace hookline {
namespace {

using std::chrono::seconds;

// Returns the paths of the group's memory files that this process has open.
std::vector<std::string> memory_files() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", getpid()))) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.string().starts_with("/memfd:hookline")) found.push_back(entry.path());
  }
  return found;
}

std::uint64_t bytes_of(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : UINT64_MAX;
}

TEST(ShmHost, UsesAtMostFourMebibytesPerRank) {
  testing::shm_fixture().spawn(2, [](ProcessGroup& group) {
    const Tensor large = Tensor::zeros({8 << 20});
    group.allreduce(large)->wait();
    group.broadcast(large)->wait();
    if (group.rank() == 0) group.send(large, 1)->wait();
    if (group.rank() == 1) group.recv(large, 0)->wait();
    group.allgather({large.slice(0, 0, 4 << 20), large.slice(0, 4 << 20, 8 << 20)}, Tensor::zeros({4 << 20}))->wait();
    const auto files = memory_files();
    EXPECT_EQ(files.size(), 2u);  // its own, and its peer's
    for (const std::string& file : files) EXPECT_LE(bytes_of(file), 4u << 20) << file;
    group.barrier()->wait();
  });
}

// Sends the message with which rank 1 would join: its rank and a file descriptor.
void send_as_rank_one(int connection) {
  int rank = 1;
  const int file = memfd_create("intruder", 0);
  iovec data = {&rank, sizeof rank};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  (void)sendmsg(connection, &message, MSG_NOSIGNAL);
}

// Attacks the sockets and memory of a group as another user. Returns a description of what succeeded, or "".
std::string attack_as_other_user(const std::vector<std::string>& memory, int expected_sockets) {
  if (setgid(65534) != 0 || setuid(65534) != 0) return "cannot become another user";
  for (const std::string& file : memory) {
    std::ifstream stream(file);
    if (stream.is_open()) return "opened " + file;
  }
  std::ifstream sockets("/proc/net/unix");
  int connected = 0;
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find("@hookline-");
    if (at == std::string::npos) continue;
    const std::string name = line.substr(at + 1);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) continue;
    ++connected;
    send_as_rank_one(fd);
    char byte = 0;
    if (recv(fd, &byte, 1, 0) > 0) return "received data from " + name;
    close(fd);
  }
  return connected >= expected_sockets ? "" : "found too few sockets";
}

TEST(ShmHost, OtherUsersAreRejected) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto store = std::make_shared<MemoryStore>();
  std::thread waiting([&] {
    EXPECT_THAT([&] { make_shm_backend(store, 0, 2, seconds(3)); },
                ::testing::ThrowsMessage<Timeout>(
                    ::testing::AllOf(::testing::HasSubstr("timed out waiting for rank 1"),
                                     ::testing::HasSubstr("rejected a connection from user 65534"))));
  });
  store->wait({"shm/0"}, seconds(30));
  store->set("shm/1", store->get("shm/0"));  // rank 0 now waits for a connection from rank 1
  const auto memory = memory_files();
  ASSERT_EQ(memory.size(), 1u);
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string result = attack_as_other_user(memory, 1);
    if (write(report[1], result.data(), result.size()) < 0) _exit(1);
    _exit(0);
  }
  close(report[1]);
  std::string result(1000, '\0');
  result.resize(static_cast<std::size_t>(std::max<ssize_t>(read(report[0], result.data(), result.size()), 0)));
  close(report[0]);
  EXPECT_EQ(result, "");
  waitpid(child, nullptr, 0);
  waiting.join();
}

TEST(ShmHost, FdExchangeCanBeInterrupted) {
  const auto store = std::make_shared<MemoryStore>();
  store->set("shm/1", backend::kPresentPrefix + backend::host_identity() + "\nunreachable");
  const InterruptScope scope([] { throw std::domain_error("interrupted"); });
  EXPECT_THROW(make_shm_backend(store, 0, 2, seconds(20)), std::domain_error);
}

std::shared_ptr<ProcessGroup> join_group_of_two(const test::TempDirectory& directory, int rank) {
  return init_process_group({.rank = rank,
                             .world_size = 2,
                             .timeout = seconds(60),
                             .store = std::make_shared<FileStore>(directory / "store")});
}

// While this object exists, the process can open only `left` more file descriptors. With Hard::unchanged, the process
// can raise its soft limit again.
class DescriptorLimit {
 public:
  enum class Hard : bool { unchanged, lowered };
  explicit DescriptorLimit(std::size_t left, Hard hard = Hard::unchanged) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lowered = before_;
    lowered.rlim_cur = 256;
    if (hard == Hard::lowered) before_.rlim_cur = before_.rlim_max = lowered.rlim_max = lowered.rlim_cur;
    setrlimit(RLIMIT_NOFILE, &lowered);
    for (int fd = dup(STDERR_FILENO); fd >= 0; fd = dup(STDERR_FILENO)) fds_.push_back(fd);
    for (; left > 0; --left, fds_.pop_back()) close(fds_.back());
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() {
    for (const int fd : fds_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_ = {};
  std::vector<int> fds_;
};

// Returns true if a rank, run in a forked process, can join with this number of free descriptors. Otherwise expects an
// error that names the cause.
bool can_join_with(std::size_t descriptors, int rank) {
  const test::TempDirectory directory;
  const pid_t peer = fork();
  if (peer == 0) {
    alarm(60);
    try {
      join_group_of_two(directory, 1 - rank)->barrier()->wait();
    } catch (const Error&) {  // the other rank failed
    }
    _exit(0);
  }
  const pid_t limited = fork();
  if (limited == 0) {
    alarm(60);
    const DescriptorLimit limit(descriptors, DescriptorLimit::Hard::lowered);
    try {
      join_group_of_two(directory, rank)->barrier()->wait();
    } catch (const ResourceError& e) {
      const std::string text = e.what();
      const bool names_cause = text.find("Too many open files") != text.npos || text.find("ulimit") != text.npos;
      _exit(names_cause ? 1 : 2);
    } catch (...) {
      _exit(2);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(limited, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << "status " << status;
  const bool joined = status == 0;
  if (!joined) kill(peer, SIGKILL);
  waitpid(peer, nullptr, 0);
  return joined;
}

TEST(ShmHost, DescriptorExhaustionIsReported) {
  for (const int rank : {0, 1}) {
    std::size_t descriptors = 0;
    while (descriptors < 30 && !can_join_with(descriptors, rank)) ++descriptors;
    EXPECT_GT(descriptors, 3u);
    EXPECT_LT(descriptors, 30u);
  }
}

// Lowers the soft limit on descriptors while this object exists.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower = {soft, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lower);
  }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;
  ~SoftLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

  static rlim_t now() {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }

 private:
  rlimit before_ = {};
};

TEST(ShmHost, LargeGroupRaisesTheSoftLimitOnDescriptors) {
  constexpr rlim_t kSoft = 200;
  const SoftLimit low(kSoft);
  shm::reserve_descriptors(2, "the test");
  EXPECT_EQ(SoftLimit::now(), kSoft);
  shm::reserve_descriptors(100, "the test");
  EXPECT_GT(SoftLimit::now(), 200u);
  EXPECT_LT(SoftLimit::now(), 500u);
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto beyond = static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_max, 1 << 30));
  EXPECT_THAT([&] { shm::reserve_descriptors(beyond, "rank 3"); },
              ::testing::ThrowsMessage<ResourceError>(
                  ::testing::AllOf(::testing::StartsWith("rank 3: no file descriptors"),
                                   ::testing::HasSubstr(std::to_string(limit.rlim_max) + " (hard)"))));
}

TEST(ShmHost, RejectsMoreThan512Ranks) {
  EXPECT_THAT([] { make_shm_backend(std::make_shared<MemoryStore>(), 0, 513, seconds(1)); },
              ::testing::ThrowsMessage<InvalidArgument>("shm group: expected 1 to 512 ranks, got 513"));
}

TEST(ShmHost, UnmappableMemoryIsReturned) {
  const auto region = std::make_shared<shm::OwnRegion>(2);
  const auto used_bytes = [&] { return bytes_of(fmt::format("/proc/self/fd/{}", region->fd())); };
  const std::uint64_t before = used_bytes();
  std::ifstream pages("/proc/self/statm");
  rlim_t mapped = 0;
  pages >> mapped;
  rlimit addresses = {};
  getrlimit(RLIMIT_AS, &addresses);
  const rlimit lowered = {mapped * 4096 + (16 << 20), addresses.rlim_max};
  setrlimit(RLIMIT_AS, &lowered);
  EXPECT_THAT([&] { (void)region->allocate(64 << 20); },
              ::testing::ThrowsMessage<ResourceError>(::testing::HasSubstr("cannot map 67108864 bytes")));
  setrlimit(RLIMIT_AS, &addresses);
  EXPECT_EQ(used_bytes(), before);
}

TEST(ShmHost, NoFileCanBeOpenedForHostIdentity) {
  const DescriptorLimit none(0);
  EXPECT_THROW((void)backend::host_identity(), ResourceError);
}

// Returns the exit code of a rank that calls exit() while it holds a group, optionally with a pending operation.
int exit_code_of_leaving(bool leak, bool pending) {
  const test::TempDirectory directory;
  const auto join = [&](int rank) { return join_group_of_two(directory, rank); };
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    static std::shared_ptr<ProcessGroup> group;  // destroyed by exit()
    group = join(1);
    static const Tensor tensor = Tensor::zeros({100'000});
    group->barrier()->wait();
    if (pending) (void)group->allreduce(tensor);
    static std::atomic<std::shared_ptr<ProcessGroup>*> never_destroyed;
    if (leak) never_destroyed = new std::shared_ptr<ProcessGroup>(group);
    std::exit(0);
  }
  const auto group = join(0);
  group->barrier()->wait();
  EXPECT_THROW(group->barrier()->wait(), Error);  // PeerLost, or Mismatch with the pending allreduce
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(ShmHost, AbortIsReportedAfterTheProcessExits) {
  const test::TempDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    const auto group = join_group_of_two(directory, 1);
    group->barrier()->wait();
    group->abort("had enough");
    _exit(0);
  }
  const auto group = join_group_of_two(directory, 0);
  group->barrier()->wait();
  waitpid(child, nullptr, 0);
  try {
    group->barrier()->wait();
    ADD_FAILURE() << "a barrier with a rank that is gone";
  } catch (const Aborted& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("had enough"));
  }
}

TEST(ShmHost, ExitWithLiveGroupNeitherCrashesNorHangs) {
  for (const bool leak : {false, true}) {
    for (const bool pending : {false, true})
      EXPECT_EQ(exit_code_of_leaving(leak, pending), 0) << "leak " << leak << ", pending " << pending;
  }
}

}  // namespace
}  // namespace hookline
