// Processes that create a group; one of them is killed at a chosen point.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hookline::testing {

struct KillScenario {
  std::string backend;
  std::map<std::string, std::string> options = {};
  int ranks = 3;
  int hosts = 1;  ///< simulated by PID namespaces; consecutive ranks share a host
  int victim = 0;
  int kill_at_call = 1;   ///< the victim is killed before this store call, counted from its announcement
  bool in_split = false;  ///< true: kill during a split of all ranks instead of init_process_group
};

/// The outcome on one surviving rank.
struct Survivor {
  int rank = 0;
  std::string error;  ///< type of the exception, for example "PeerLost"; "none" if the groups work
  std::string text;
  std::vector<int> ranks;  ///< Error::ranks()
  double seconds = 0;      ///< time from the death of the victim to the error
};

/// Returns the outcome on each survivor; empty if the victim created its group before the chosen call.
std::vector<Survivor> kill_rank(const KillScenario& scenario);

/// Kills a rank at each store call in turn and expects a PeerLost naming it on all survivors.
void expect_deaths_reported(KillScenario scenario);

}  // namespace hookline::testing
