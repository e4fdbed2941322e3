// Processes that make a group, one of which is killed at a chosen point of it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hookline::testing {

struct Killing {
  std::string backend;
  std::map<std::string, std::string> options = {};
  int ranks = 3;
  int hosts = 1;  ///< PID namespaces, which count as hosts: the first ranks are on the first
  int victim = 0;
  int calls = 1;          ///< the victim is killed before this call of its store, from the time that it is known on
  bool in_split = false;  ///< while it makes the group of all ranks a second time, by split
};

/// What one rank met with.
struct Survivor {
  int rank = 0;
  std::string error;  ///< the type of what it threw: "PeerLost", …; "none" where the groups were made and work
  std::string text;
  std::vector<int> ranks;  ///< of the error
  double seconds = 0;      ///< from the death of the victim on
};

/// Returns what each survivor met with; nothing where the victim had made its group before it was to be killed.
std::vector<Survivor> kill_rank(const Killing& killing);

/// Kills ranks at one point after another, and expects that all survivors are told who died.
void expect_deaths_are_told(Killing killing);

}  // namespace hookline::testing
