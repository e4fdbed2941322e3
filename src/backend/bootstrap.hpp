// Failure detection while a group is being made, before the group itself can detect anything.
//
// A rank learns of a death in one of these ways, whichever comes first:
//   - new_group and split: the parent group's failure detector (Backend::dead_ranks: robust mutexes and pidfds of shm,
//     connections of the engines), for ranks on all hosts;
//   - init_process_group: a pidfd of each process on the same host. Each rank leaves its pid and start time in the
//   store
//     before anything else, and opens the pidfds of the others once it has to wait;
//   - init_process_group under hookline run: the launcher's list of ranks that have ended, for ranks that never came;
//   - both: what another rank left in the store under "failed". The first rank that learns of a death writes it there,
//     for ranks on other hosts, and so that all ranks name the same rank. A rank that gives up for another reason
//     writes that.
// A rank alone on its host that dies in init_process_group leaves no witness: its launcher ends the job (hookline run,
// torchrun), or the others time out.
//
// All state of a Bootstrap belongs to the thread that makes the group. Keys in the store: "count" and "done" only grow
// (add); "process/<i>" is written once, by the rank that got i from "count"; "failed" is written once. The last rank
// that is done removes them.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>
#include <hookline/store/store.hpp>

#include "core/descriptor.hpp"

namespace hookline::backend {

/// How long a wait may last before it calls check_bootstrap(): shorter at first, longer where many ranks share a store.
HOOKLINE_EXPORT Milliseconds bootstrap_period();

/// Throws where the group that this thread makes cannot come to be: PeerLost naming dead ranks, or the error that
/// another rank published. Also calls check_interrupt(). Cheap; every wait calls it about ten times a second.
HOOKLINE_EXPORT void check_bootstrap();

/// Returns the global rank of a rank of the group that this thread makes, as errors name it; `rank` itself outside.
HOOKLINE_EXPORT int global_rank(int rank);
HOOKLINE_EXPORT std::vector<int> global_ranks(const std::vector<int>& ranks);

/// While it lives, the thread makes a part of the group: ranks are those of the part, whose global ranks these are.
class PartScope {
 public:
  explicit PartScope(std::vector<int> members);
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;
  ~PartScope();

 private:
  std::vector<int> members_;
};

struct BootstrapOptions {
  std::string operation;         ///< for messages
  int rank = 0;                  ///< of this process, global
  int size = 1;                  ///< of the group that is made
  std::vector<int> members;      ///< global ranks by rank of that group; empty: its ranks are global
  std::shared_ptr<Store> place;  ///< for this group alone; null: deaths are not published
  /// Returns the dead global ranks that a parent group knows of; null: processes are watched through `place`.
  std::function<std::vector<int>()> dead = nullptr;
  std::function<std::vector<int>()> ended = nullptr;  ///< returns the ranks whose end the launcher has seen
  int store_rank = -1;                                ///< the global rank whose process serves the store; -1: none does
  std::function<void()> clean = nullptr;              ///< removes other keys, on the last rank whose group is made
};

/// One attempt of this thread at making a group. It is the current one while it lives.
class Bootstrap {
 public:
  explicit Bootstrap(BootstrapOptions options);
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  ~Bootstrap();

  /// Runs `make` and returns its result. Where it throws, publishes the failure and throws an error that names the dead
  /// rank, if a death is the reason, with what was thrown as its cause.
  template <class F>
  auto run(F make) {
    try {
      auto made = make();
      finish();
      return made;
    } catch (...) {
      std::rethrow_exception(explain(std::current_exception()));
    }
  }

 private:
  friend class PartScope;
  friend void check_bootstrap();
  friend Milliseconds bootstrap_period();
  friend int global_rank(int rank);

  struct Process {
    int rank;
    core::Descriptor pidfd;  ///< empty: it was gone when this rank wanted to watch it
  };

  void announce_process();
  void learn_processes();
  void watch(const std::string& process);
  std::vector<int> find_dead(Milliseconds wait) const;
  void look(bool at_store, Milliseconds wait = Milliseconds(0));
  void look_at_failed();
  void look_at_ended();
  [[noreturn]] void lose(const std::vector<int>& dead, const std::string& text = "");
  void publish(const std::exception_ptr& error);
  [[noreturn]] void decide(const std::string& failed);
  std::exception_ptr explain(const std::exception_ptr& error);
  void finish();
  std::string context() const;

  BootstrapOptions options_;
  std::vector<int> part_;  ///< global ranks by rank of the part that is being made
  Bootstrap* const outer_;
  const Clock::time_point started_;
  Clock::time_point next_look_;
  Clock::time_point next_store_look_;
  std::string host_;
  std::vector<Process> processes_;
  std::vector<int> announced_;  ///< ranks whose process was read from the store, on all hosts
  std::int64_t known_ = 0;      ///< processes that were read from the store, on all hosts
  std::exception_ptr decided_;  ///< what this rank threw because a rank is dead or has failed
};

}  // namespace hookline::backend
