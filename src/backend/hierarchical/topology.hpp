// The placement of ranks on hosts, and the owners of slices.
#pragma once

#include <string>
#include <vector>

namespace hookline::hierarchical {

/// The ranks of a group by host. The number of slices is the size of the smallest host; slice i is owned by rank i of
/// each host. The owners of a slice exchange it between hosts.
struct Topology {
  std::vector<std::vector<int>> hosts;  ///< ascending ranks of each host; hosts in the order of their first ranks
  std::size_t host = 0;                 ///< index of this rank's host
  std::size_t local_rank = 0;           ///< index of this rank within its host
  std::size_t slices = 1;
  std::size_t max_local_size = 1;  ///< size of the largest host

  const std::vector<int>& local_ranks() const { return hosts[host]; }
  bool is_uniform() const { return slices == max_local_size; }
  bool owns_slice() const { return local_rank < slices; }
  std::size_t host_of(int rank) const;
  std::size_t local_rank_of(int rank) const;
  /// Returns the owners of a slice, by host.
  std::vector<int> owners(std::size_t slice) const;
};

/// `host_names` holds a host name for each rank.
Topology make_topology(const std::vector<std::string>& host_names, int rank);

/// Returns the topology of a subgroup, whose ranks are numbered by their order in `ranks`.
Topology sub_topology(const Topology& topology, const std::vector<int>& ranks, int rank);

}  // namespace hookline::hierarchical
