// Threads with a group each, or forked processes that meet in a file store.
#include "harness/spawn.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <hookline/backend/shm.hpp>
#include <hookline/backend/threads.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/file_store.hpp>

#include "harness/temp_directory.hpp"

namespace hookline::testing {
namespace {

constexpr Milliseconds kTimeout{30'000};

void spawn_threads(int ranks, const RankBody& body, const ThreadsOptions& options) {
  std::mutex mutex;
  std::string first_failure;
  std::vector<std::thread> threads;
  for (auto& backend : make_threads_backends(ranks, options)) {
    threads.emplace_back([&, group = make_group(std::move(backend), kTimeout)] {
      try {
        body(*group);
      } catch (...) {
        const std::string text = fmt::format("rank {}: {}", group->rank(), describe(std::current_exception()));
        {
          const std::lock_guard lock(mutex);
          if (first_failure.empty()) first_failure = text;
        }
        group->abort("the test failed on this rank");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_failure.empty()) throw std::runtime_error(first_failure);
}

// In the child: nothing of the test program may run on behind the body, so it ends by _exit.
[[noreturn]] void run_rank(const std::string& path, int rank, int ranks, const RankBody& body, int report) {
  std::string failure;
  try {
    const auto group = make_group(make_shm_backend(std::make_shared<FileStore>(path), rank, ranks, kTimeout), kTimeout);
    try {
      body(*group);
      if (::testing::Test::HasFailure()) failure = "an expectation failed";
    } catch (...) {
      failure = describe(std::current_exception());
      group->abort("the test failed on this rank");
    }
  } catch (...) {
    failure = describe(std::current_exception());
  }
  if (!failure.empty()) {
    const std::string text = fmt::format("rank {}: {}\n", rank, failure);
    if (write(report, text.data(), text.size()) < 0) std::perror("report");
  }
  std::fflush(nullptr);
  _exit(failure.empty() ? 0 : 1);
}

void spawn_processes(int ranks, const RankBody& body) {
  const test::TempDirectory directory;
  int report[2];
  if (pipe(report) != 0) throw std::runtime_error("pipe");
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      close(report[0]);
      run_rank(directory / "store", r, ranks, body, report[1]);
    }
    children.push_back(child);
  }
  close(report[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(report[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  close(report[0]);
  for (int r = 0; r < ranks; ++r) {
    int status = 0;
    waitpid(children[static_cast<std::size_t>(r)], &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
      text += fmt::format("rank {}: died of signal {}\n", r, WTERMSIG(status));
  }
  if (!text.empty()) throw std::runtime_error(text);
}

}  // namespace

World shm_world() { return {"shm", spawn_processes}; }

World threads_world() {
  return {"threads", [](int ranks, const RankBody& body) { spawn_threads(ranks, body, {.reach_all_memory = true}); }};
}

World private_threads_world() {
  return {"private_threads",
          [](int ranks, const RankBody& body) { spawn_threads(ranks, body, {.reach_all_memory = false}); }};
}

}  // namespace hookline::testing
