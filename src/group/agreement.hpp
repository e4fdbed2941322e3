// How ranks find out, through a store, whether they are about to do the same.
#pragma once

#include <string>

#include <hookline/backend/collective.hpp>
#include <hookline/core/deadline.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

/// What all ranks of an operation have to have in common, in words.
std::string common_part(const Collective& collective);

/// Where and as whom to compare.
struct Meeting {
  Store& store;
  int rank;
  int size;
  std::string key;   ///< of this operation; all keys begin with it
  std::string what;  ///< "number 5 of lane 0", for messages
};

/// Returns when every rank has come with the same text. Throws Mismatch listing all texts, or Timeout naming the ranks
/// that did not come.
///
/// A rank adds its hash and itself to a sum. The last one to come sees from the sum whether all are equal, and tells
/// each of the others under a key of its own, which that one deletes: add, wait, get and delete are four round trips.
/// More ranks than a sum has bits for add themselves to a list first, which a server does not answer.
void agree(const Meeting& meeting, const std::string& text, Clock::time_point deadline);

}  // namespace hookline::group
