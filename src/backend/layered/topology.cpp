// Groups ranks by host.
#include "backend/layered/topology.hpp"

#include <algorithm>

namespace hookline::layered {

std::size_t Topology::host_of(int rank) const {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [rank](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
  return static_cast<std::size_t>(found - hosts.begin());
}

std::size_t Topology::place_of(int rank) const {
  const std::vector<int>& ranks = hosts[host_of(rank)];
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::vector<int> Topology::owners(std::size_t slice) const {
  std::vector<int> ranks;
  ranks.reserve(hosts.size());
  for (const std::vector<int>& there : hosts) ranks.push_back(there[slice]);
  return ranks;
}

Topology make_topology(const std::vector<std::string>& names, int rank) {
  Topology topology;
  std::vector<std::string> seen;
  for (std::size_t r = 0; r < names.size(); ++r) {
    const auto found = std::find(seen.begin(), seen.end(), names[r]);
    const auto host = static_cast<std::size_t>(found - seen.begin());
    if (found == seen.end()) {
      seen.push_back(names[r]);
      topology.hosts.emplace_back();
    }
    topology.hosts[host].push_back(static_cast<int>(r));
  }
  topology.host = topology.host_of(rank);
  topology.place = topology.place_of(rank);
  topology.slices = names.size();
  for (const std::vector<int>& ranks : topology.hosts) {
    topology.slices = std::min(topology.slices, ranks.size());
    topology.most = std::max(topology.most, ranks.size());
  }
  return topology;
}

Topology part_of(const Topology& whole, const std::vector<int>& ranks, int rank) {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const int r : ranks) names.push_back(std::to_string(whole.host_of(r)));
  return make_topology(names, rank);
}

}  // namespace hookline::layered
