// The groups that a layered one is made of.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/layered/topology.hpp"

namespace hookline::layered {

struct Levels {
  int rank = 0;
  int size = 1;
  Topology topology;
  std::vector<int> all;            ///< 0, 1, …
  std::shared_ptr<Backend> inner;  ///< the ranks of this host
  std::shared_ptr<Backend> flat;   ///< all ranks, through the engine
  std::shared_ptr<Backend> slice;  ///< this rank and its counterparts; null where it owns no slice
};

/// The error of a part of the group, whose ranks are numbered otherwise, in the words of the whole: with the numbers of
/// the whole (in its text and in ranks()), and PeerLost where a rank of the part gave up because it lost a peer
/// elsewhere. `ranks` are the part's.
std::exception_ptr in_whole_group(const std::exception_ptr& error, const std::vector<int>& ranks);

/// Numbers the ranks of a part, whose ranks in the whole are `ranks`, as in the whole.
std::vector<int> group_ranks(const std::vector<int>& some, const std::vector<int>& ranks);

/// What this rank's parts are told when it gives up because of an error.
std::string told_to_parts(const std::exception_ptr& error);

}  // namespace hookline::layered
