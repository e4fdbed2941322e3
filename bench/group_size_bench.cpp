// Measures the setup time and the memory per rank of a shm group by number of ranks: group_size_bench 2 64 128 512
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <hookline/hookline.hpp>

namespace {

using namespace hookline;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Returns the value of a line such as "VmPTE:   64 kB".
double kibibytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (double value = 0; word == key && file >> value) return value;
  }
  return 0;
}

// Returns the KiB allocated for the group's shared memory file: the memfd with the lowest descriptor.
double shared_memory_kib() {
  for (int fd = 3; fd < 1000; ++fd) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd), error);
    struct stat status = {};
    if (!error && target.string().starts_with("/memfd:hookline") && fstat(fd, &status) == 0)
      return static_cast<double>(status.st_blocks) / 2;
  }
  return 0;
}

double mean_microseconds(ProcessGroup& group, int times, const std::function<void()>& operation) {
  operation();
  group.barrier()->wait();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < times; ++i) operation();
  return 1e6 * seconds_since(start) / times;
}

struct Figures {
  double setup = 0, file = 0, anonymous = 0, tables = 0, barrier = 0, small = 0, large = 0, message = 0;
};

Figures measure(std::uint16_t port, int rank, int ranks, Clock::time_point start) {
  const Milliseconds timeout = std::chrono::minutes(5);
  const auto store = std::make_shared<TCPStore>(TCPStoreOptions{.port = port, .timeout = timeout});
  const double before = kibibytes("/proc/self/smaps_rollup", "Pss_Anon:");
  const auto group =
      init_process_group({.backend = "shm", .rank = rank, .world_size = ranks, .timeout = timeout, .store = store});
  group->barrier()->wait();
  Figures figures{.setup = seconds_since(start)};
  const int times = ranks > 64 ? 10 : ranks > 2 ? 100 : 10'000;
  const Tensor small = Tensor::zeros({2});
  const Tensor large = Tensor::zeros({1 << 18});
  figures.barrier = mean_microseconds(*group, times, [&] { group->barrier()->wait(); });
  figures.small = mean_microseconds(*group, times, [&] { group->allreduce(small)->wait(); });
  figures.large = mean_microseconds(*group, std::max(2, times / 10), [&] { group->allreduce(large)->wait(); });
  figures.message = mean_microseconds(*group, std::max(2, times / 10), [&] {
    if (rank == 0) group->send(large, 1)->wait();
    if (rank == 1) group->recv(large, 0)->wait();
  });
  group->barrier()->wait();
  Tensor memory = Tensor::zeros({3}, DType::f64);
  memory.data<double>()[0] = shared_memory_kib();
  memory.data<double>()[1] = kibibytes("/proc/self/smaps_rollup", "Pss_Anon:") - before;
  memory.data<double>()[2] = kibibytes("/proc/self/status", "VmPTE:");
  group->allreduce(memory)->wait();
  figures.file = memory.data<double>()[0] / ranks;
  figures.anonymous = memory.data<double>()[1] / ranks;
  figures.tables = memory.data<double>()[2] / ranks;
  return figures;
}

// Starts a process that serves a store until it is killed, and returns its port.
std::uint16_t serve_store(pid_t& server) {
  int pipe_ends[2];
  std::uint16_t port = 0;
  if (pipe(pipe_ends) != 0) std::exit(1);
  server = fork();
  if (server == 0) {
    const TCPStore store({.is_master = true, .wait_for_workers = false});
    port = store.port();
    if (write(pipe_ends[1], &port, sizeof port) != sizeof port) _exit(1);
    for (;;) pause();
  }
  close(pipe_ends[1]);
  if (read(pipe_ends[0], &port, sizeof port) != sizeof port) std::exit(1);
  close(pipe_ends[0]);
  return port;
}

void run(int ranks) {
  pid_t server = 0;
  const std::uint16_t port = serve_store(server);
  const Clock::time_point start = Clock::now();
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const Figures figures = measure(port, r, ranks, start);
    if (r == 0) {
      fmt::print("{:5} {:9.2f} {:9.0f} {:9.0f} {:9.0f} {:12.1f} {:12.1f} {:12.0f} {:12.0f}\n", ranks, figures.setup,
                 figures.file, figures.anonymous, figures.tables, figures.barrier, figures.small, figures.large,
                 figures.message);
    }
    std::fflush(nullptr);
    _exit(0);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  fmt::print("{:>5} {:>9} {:>9} {:>9} {:>9} {:>12} {:>12} {:>12} {:>12}\n", "ranks", "setup s", "file KiB", "heap KiB",
             "PTE KiB", "barrier us", "8 B us", "1 MiB us", "send 1 MiB us");
  std::fflush(nullptr);
  for (int i = 1; i < argc; ++i) run(std::atoi(argv[i]));
}
