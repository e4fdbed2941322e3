// The sub-backends of a hierarchical group, and the translation of their errors.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/hierarchical/topology.hpp"

namespace hookline::hierarchical {

/// A rank's view of the hierarchy.
struct SubBackends {
  int rank = 0;
  int size = 1;
  Topology topology;
  std::vector<int> all_ranks;           ///< 0, 1, …
  std::shared_ptr<Backend> intra_host;  ///< the ranks of this host
  std::shared_ptr<Backend> global;      ///< all ranks, over the transport
  std::shared_ptr<Backend> inter_host;  ///< the owners of this rank's slice, one on each host; null if it owns none
};

/// Translates an error of a sub-backend into one of the group: maps rank numbers, in the text and in ranks(), and
/// returns PeerLost if a rank of the sub-backend failed because it lost a peer of another one. `ranks[i]` is the group
/// rank of the sub-backend's rank i.
std::exception_ptr translate_error(const std::exception_ptr& error, const std::vector<int>& ranks);

/// Maps ranks of a sub-backend to ranks of the group.
std::vector<int> map_ranks(const std::vector<int>& sub_ranks, const std::vector<int>& ranks);

/// Returns the text with which the sub-backends are aborted because of an error.
std::string abort_message(const std::exception_ptr& error);

}  // namespace hookline::hierarchical
