// Who is on which host, and who carries which slice between the hosts.
#pragma once

#include <string>
#include <vector>

namespace hookline::layered {

/// The ranks of a group by host. Every host has as many slice owners as the host with the fewest ranks has ranks: its
/// first ones. A slice's owners on all hosts are each other's counterparts.
struct Topology {
  std::vector<std::vector<int>> hosts;  ///< ranks in their order; hosts in the order of their first ranks
  std::size_t host = 0;                 ///< the one that this rank is on
  std::size_t place = 0;                ///< of this rank among those of its host
  std::size_t slices = 1;
  std::size_t most = 1;  ///< the ranks of the host with the most

  const std::vector<int>& here() const { return hosts[host]; }
  bool even() const { return slices == most; }
  bool owns_slice() const { return place < slices; }
  std::size_t host_of(int rank) const;
  std::size_t place_of(int rank) const;
  /// The owners of a slice, host by host.
  std::vector<int> owners(std::size_t slice) const;
};

/// `names` has a text for each rank that is the same for those of one host.
Topology make_topology(const std::vector<std::string>& names, int rank);

/// The part of a topology that some of the ranks are, numbered by their order in `ranks`.
Topology part_of(const Topology& whole, const std::vector<int>& ranks, int rank);

}  // namespace hookline::layered
