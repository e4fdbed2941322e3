// The placement of ranks on hosts, and the owners of slices.
#pragma once

#include <string>
#include <vector>

namespace hookline::layered {

/// The ranks of a group by host. The number of slices is the size of the smallest host; slice i is owned by rank i of
/// each host. The owners of a slice exchange it between hosts.
struct Topology {
  std::vector<std::vector<int>> hosts;  ///< ascending ranks of each host; hosts in the order of their first ranks
  std::size_t host = 0;                 ///< index of this rank's host
  std::size_t place = 0;                ///< index of this rank within its host
  std::size_t slices = 1;
  std::size_t most = 1;  ///< size of the largest host

  const std::vector<int>& here() const { return hosts[host]; }
  bool even() const { return slices == most; }
  bool owns_slice() const { return place < slices; }
  std::size_t host_of(int rank) const;
  std::size_t place_of(int rank) const;
  /// Returns the owners of a slice, by host.
  std::vector<int> owners(std::size_t slice) const;
};

/// `names` holds a host name for each rank.
Topology make_topology(const std::vector<std::string>& names, int rank);

/// Returns the topology of a subgroup, whose ranks are numbered by their order in `ranks`.
Topology part_of(const Topology& whole, const std::vector<int>& ranks, int rank);

}  // namespace hookline::layered
