// Failure detection while a group is being created, before the group's own failure detector runs.
//
// A rank detects a death through the first of these sources that reports it:
//   - new_group and split: the parent group's failure detector (Backend::dead_ranks: robust mutexes and pidfds of shm,
//     connections of the transports), for ranks on all hosts;
//   - init_process_group: a pidfd of each process on the same host. Each rank first publishes its pid and start time in
//     the store, and opens the pidfds of the other ranks when it has to wait;
//   - init_process_group under hookline run: the launcher's list of exited ranks, for ranks that never joined;
//   - in all cases: the key "failed" in the store. The first rank that detects a death publishes it there for ranks on
//     other hosts, so that all ranks name the same dead rank. A rank that fails for another reason publishes that
//     reason.
// No rank detects the death of a rank that is alone on its host in init_process_group: the launcher ends the job
// (hookline run, torchrun), or the other ranks time out.
//
// All state of a Bootstrap belongs to the thread that creates the group. Keys in the store: "count" and "done" only
// grow (add); "process/<i>" is written once, by the rank that got i from "count"; "failed" is written once. The last
// rank that finishes deletes them.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>
#include <hookline/store/store.hpp>

#include "core/file_descriptor.hpp"

namespace hookline::backend {

/// Returns the maximum time between two calls of check_bootstrap() in a wait: short at first, longer for large groups,
/// whose ranks share one store.
HOOKLINE_EXPORT Milliseconds bootstrap_poll_interval();

/// Throws if the group that this thread creates has failed: PeerLost naming dead ranks, or the error that another rank
/// published. Also calls check_interrupt(). Cheap; every wait calls it about ten times per second.
HOOKLINE_EXPORT void check_bootstrap();

/// Returns the global rank of a rank of the group that this thread creates, for use in errors. Returns `rank` itself if
/// this thread creates no group.
HOOKLINE_EXPORT int global_rank(int rank);
HOOKLINE_EXPORT std::vector<int> global_ranks(const std::vector<int>& ranks);

/// Scope in which this thread creates a subgroup of the group: ranks are subgroup ranks, and `members` maps them to
/// global ranks.
class SubgroupScope {
 public:
  explicit SubgroupScope(std::vector<int> members);
  SubgroupScope(const SubgroupScope&) = delete;
  SubgroupScope& operator=(const SubgroupScope&) = delete;
  ~SubgroupScope();

 private:
  std::vector<int> members_;
};

struct BootstrapOptions {
  std::string operation;         ///< name for error messages
  int rank = 0;                  ///< global rank of this process
  int size = 1;                  ///< size of the new group
  std::vector<int> members;      ///< global ranks by rank of the new group; empty: its ranks are global
  std::shared_ptr<Store> store;  ///< used by this group only; null: deaths are not published
  /// Returns the dead global ranks that the parent group detected; null: watch processes announced in `store`.
  std::function<std::vector<int>()> dead_ranks = nullptr;
  std::function<std::vector<int>()> ended = nullptr;  ///< returns the exited ranks that the launcher published
  int store_rank = -1;                                ///< global rank of the process that serves the store; -1: no rank
  std::function<void()> delete_keys = nullptr;        ///< deletes other keys; called on the last rank that finishes
};

/// One attempt of this thread to create a group. Registers itself as the thread's current Bootstrap while it lives.
class Bootstrap {
 public:
  explicit Bootstrap(BootstrapOptions options);
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  ~Bootstrap();

  /// Runs `make` and returns its result. If `make` throws, publishes the failure and rethrows; if a rank died, throws a
  /// PeerLost that names it, with the original error as its cause.
  template <class F>
  auto run(F make) {
    try {
      auto result = make();
      finish();
      return result;
    } catch (...) {
      std::rethrow_exception(diagnose(std::current_exception()));
    }
  }

 private:
  friend class SubgroupScope;
  friend void check_bootstrap();
  friend Milliseconds bootstrap_poll_interval();
  friend int global_rank(int rank);

  struct Process {
    int rank;
    core::FileDescriptor pidfd;  ///< empty: the process had exited before this rank opened a pidfd
  };

  void announce_process();
  void discover_processes();
  void watch_process(const std::string& process);
  std::vector<int> find_dead(Milliseconds timeout) const;
  void poll(bool poll_store, Milliseconds timeout = Milliseconds(0));
  void check_failed_key();
  void check_exited_ranks();
  [[noreturn]] void report_dead(const std::vector<int>& dead, const std::string& text = "");
  void publish_error(const std::exception_ptr& error);
  [[noreturn]] void throw_published(const std::string& published);
  std::exception_ptr diagnose(const std::exception_ptr& error);
  void finish();
  std::string context() const;

  BootstrapOptions options_;
  std::vector<int> subgroup_ranks_;  ///< global ranks by rank of the subgroup being created
  Bootstrap* const outer_;
  const Clock::time_point started_;
  Clock::time_point next_poll_;
  Clock::time_point next_store_poll_;
  std::string host_;
  std::vector<Process> processes_;
  std::vector<int> announced_;       ///< ranks whose process was read from the store, on all hosts
  std::int64_t processes_read_ = 0;  ///< processes read from the store, on all hosts
  std::exception_ptr failure_;       ///< the error thrown because a rank died or failed
};

}  // namespace hookline::backend
