// Helpers for tests of group wrappers: groups of threads, and one thread per rank that collects its error.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <hookline/backend/threads.hpp>
#include <hookline/group/collective_checks.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/store/memory_store.hpp>

namespace hookline::testing {

using Groups = std::vector<std::shared_ptr<ProcessGroup>>;

inline Groups make_thread_groups(int size, Milliseconds timeout = std::chrono::seconds(20)) {
  Groups groups;
  for (auto& backend : make_threads_backends(size)) groups.push_back(make_group(backend, timeout));
  return groups;
}

/// Thread groups with collective checks that share one store.
struct CheckedRanks {
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  Groups groups;
  explicit CheckedRanks(int size = 2, Milliseconds timeout = std::chrono::seconds(20)) {
    for (const auto& g : make_thread_groups(size, timeout)) groups.push_back(with_collective_checks(g, store));
  }
};

/// Runs `body` on one thread per rank. Returns the error message of each rank, empty on success.
template <class F>
std::vector<std::string> on_ranks(const Groups& groups, F body) {
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    ranks.emplace_back([&, r] {
      try {
        body(*groups[r], static_cast<int>(r));
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  return errors;
}

inline float sum_of_ones(ProcessGroup& group) {
  Tensor t = Tensor::full({8}, 1);
  group.allreduce(t)->wait(std::chrono::seconds(20));
  return t.slice(0, 7, 8).item<float>();
}

}  // namespace hookline::testing
