// Spawns ranks as threads, or as forked processes that rendezvous in a file store.
#include "harness/spawn.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
#include <hookline/store/prefix_store.hpp>

#include "backend/hierarchical/make_hierarchical.hpp"
#include "backend/threads/threads_memory.hpp"
#include "harness/memory_transport.hpp"
#include "harness/temp_directory.hpp"

namespace hookline::testing {
namespace {

constexpr Milliseconds kTimeout{30'000};

/// Wraps the backend of a rank.
using Wrap = std::function<std::shared_ptr<Backend>(std::shared_ptr<Backend>)>;
/// Returns the host of a rank.
using HostOf = std::function<int(int rank, int ranks)>;

hierarchical::Topology topology(int rank, int ranks, const HostOf& host_of) {
  std::vector<std::string> names;
  for (int r = 0; r < ranks; ++r) names.push_back(std::to_string(host_of(r, ranks)));
  return hierarchical::make_topology(names, rank);
}

void spawn_threads(std::vector<std::shared_ptr<Backend>> backends, const RankBody& body, const Wrap& wrap = nullptr) {
  std::mutex mutex;
  std::string first_failure;
  std::vector<std::thread> threads;
  for (auto& backend : backends) {
    threads.emplace_back([&, backend = std::move(backend)]() mutable {
      const auto group = make_group(wrap ? wrap(std::move(backend)) : std::move(backend), kTimeout);
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

// Runs in the child process. Ends with _exit, so that no code of the test program runs after the body.
[[noreturn]] void run_rank(const std::string& path, int rank, int ranks, const RankBody& body, int report,
                           const MakeGroup& make) {
  std::string failure;
  const bool failed_before = ::testing::Test::HasFailure();  // inherited from the parent
  try {
    const auto group = make(std::make_shared<FileStore>(path), rank, ranks);
    try {
      body(*group);
      if (::testing::Test::HasFailure() && !failed_before) failure = "an expectation failed";
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

void spawn_processes(int ranks, const RankBody& body, const MakeGroup& make) {
  const test::TempDirectory directory;
  int report[2];
  if (pipe(report) != 0) throw std::runtime_error("pipe");
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      close(report[0]);
      run_rank(directory / "store", r, ranks, body, report[1], make);
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
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
      text += fmt::format("rank {}: exit code {}\n", r, WEXITSTATUS(status));
  }
  if (!text.empty()) throw std::runtime_error(text);
}

std::shared_ptr<Backend> make_shm(const std::shared_ptr<Store>& store, int rank, int ranks) {
  return make_shm_backend(store, rank, ranks, kTimeout);
}

hierarchical::MakeSubBackend new_subgroup_of(const std::shared_ptr<Backend>& parent) {
  return [parent](const std::vector<int>& some, const std::string& which, Milliseconds timeout) {
    return parent->new_subgroup(some, which, timeout);
  };
}

GroupFixture hierarchical_threads(const std::string& name, const HostOf& host_of, bool over_transport) {
  return {name, [host_of, over_transport](int ranks, const RankBody& body) {
            std::vector<std::shared_ptr<Backend>> transport_backends;
            for (auto& transport : make_memory_transports(ranks))
              transport_backends.push_back(make_transport_backend(std::move(transport)));
            auto backends = threads::make_backends(ranks, false);
            spawn_threads(std::move(backends), body, [&](const std::shared_ptr<Backend>& all) {
              const int rank = all->rank();
              const auto& inter_host = over_transport ? transport_backends[static_cast<std::size_t>(rank)] : all;
              return hierarchical::make_hierarchical(topology(rank, ranks, host_of), rank,
                                                     {new_subgroup_of(all), new_subgroup_of(inter_host)}, kTimeout);
            });
          }};
}

}  // namespace

GroupFixture processes_fixture(const std::string& name, const MakeGroup& make) {
  return {name, [make](int ranks, const RankBody& body) { spawn_processes(ranks, body, make); }};
}

GroupFixture processes_fixture(const std::string& name, const MakeBackend& make_backend) {
  return processes_fixture(name, [make_backend](const std::shared_ptr<Store>& store, int rank, int ranks) {
    return make_group(make_backend(store, rank, ranks), kTimeout);
  });
}

GroupFixture shm_fixture() { return processes_fixture("shm", make_shm); }

GroupFixture hierarchical_threads_fixture() {
  return hierarchical_threads("hierarchical_threads", [](int rank, int) { return rank % 2; }, false);
}

GroupFixture hierarchical_hosts_fixture() {
  return hierarchical_threads("hierarchical_hosts", [](int rank, int) { return rank % 3; }, true);
}

GroupFixture hierarchical_processes_fixture() {
  const MakeBackend make_backend = [](const std::shared_ptr<Store>& store, int rank, int ranks) {
    const hierarchical::MakeSubBackend part = [store, rank](const std::vector<int>& some, const std::string& which,
                                                            Milliseconds timeout) {
      const auto own = std::find(some.begin(), some.end(), rank) - some.begin();
      return make_shm_backend(std::make_shared<PrefixStore>(which, store), static_cast<int>(own),
                              static_cast<int>(some.size()), timeout, WaitPolicy::block);
    };
    const auto halves = [](int r, int n) { return r < (n + 1) / 2 ? 0 : 1; };
    return hierarchical::make_hierarchical(topology(rank, ranks, halves), rank, {part, part}, kTimeout);
  };
  return processes_fixture("hierarchical_processes", make_backend);
}

GroupFixture threads_fixture() {
  return {"threads", [](int ranks, const RankBody& body) { spawn_threads(make_threads_backends(ranks), body); }};
}

GroupFixture private_threads_fixture() {
  return {"private_threads",
          [](int ranks, const RankBody& body) { spawn_threads(threads::make_backends(ranks, false), body); }};
}

GroupFixture memory_transport_fixture() {
  return {"memory_transport", [](int ranks, const RankBody& body) {
            std::vector<std::shared_ptr<Backend>> backends;
            for (auto& transport : make_memory_transports(ranks))
              backends.push_back(make_transport_backend(std::move(transport)));
            spawn_threads(std::move(backends), body);
          }};
}

}  // namespace hookline::testing
