// Groups ranks by host.
#include "backend/hierarchical/topology.hpp"

#include <algorithm>

namespace hookline::hierarchical {

std::size_t Topology::host_of(int rank) const {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [rank](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  });
  return static_cast<std::size_t>(found - hosts.begin());
}

std::size_t Topology::local_rank_of(int rank) const {
  const std::vector<int>& ranks = hosts[host_of(rank)];
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::vector<int> Topology::owners(std::size_t slice) const {
  std::vector<int> ranks;
  ranks.reserve(hosts.size());
  for (const std::vector<int>& host_ranks : hosts) ranks.push_back(host_ranks[slice]);
  return ranks;
}

Topology make_topology(const std::vector<std::string>& host_names, int rank) {
  Topology topology;
  std::vector<std::string> known_hosts;
  for (std::size_t r = 0; r < host_names.size(); ++r) {
    const auto found = std::find(known_hosts.begin(), known_hosts.end(), host_names[r]);
    const auto host = static_cast<std::size_t>(found - known_hosts.begin());
    if (found == known_hosts.end()) {
      known_hosts.push_back(host_names[r]);
      topology.hosts.emplace_back();
    }
    topology.hosts[host].push_back(static_cast<int>(r));
  }
  topology.host = topology.host_of(rank);
  topology.local_rank = topology.local_rank_of(rank);
  topology.slices = host_names.size();
  for (const std::vector<int>& ranks : topology.hosts) {
    topology.slices = std::min(topology.slices, ranks.size());
    topology.max_local_size = std::max(topology.max_local_size, ranks.size());
  }
  return topology;
}

Topology sub_topology(const Topology& topology, const std::vector<int>& ranks, int rank) {
  std::vector<std::string> host_names;
  host_names.reserve(ranks.size());
  for (const int r : ranks) host_names.push_back(std::to_string(topology.host_of(r)));
  return make_topology(host_names, rank);
}

}  // namespace hookline::hierarchical
