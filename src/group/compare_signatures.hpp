// compare_signatures: compares the ranks' calls through a store before an operation runs.
#pragma once

#include <string>

#include <hookline/backend/operation.hpp>
#include <hookline/core/deadline.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

/// Returns the parts of an operation that must be equal on all ranks, as text for comparison and messages.
std::string signature_text(const Operation& operation);

/// Identifies one comparison: the store, this rank and the position of the operation.
struct CheckPoint {
  Store& store;
  int rank;
  int size;
  std::string key;    ///< prefix of all keys of this operation
  std::string label;  ///< position of the operation for messages, such as "number 5 of lane 0"
};

/// Blocks until all ranks have arrived with the same signature. Throws Mismatch listing all signatures, or Timeout
/// naming the missing ranks.
///
/// Protocol: each rank atomically adds its arrival bit and the hash of its signature to a counter. The last rank to
/// arrive reads from the sum whether all hashes are equal, and writes the verdict to one key per rank. Each rank waits
/// for its key, reads and deletes it: add, wait, get and delete are four round trips. Groups with more ranks than
/// arrival bits count arrivals instead, and append to a list, without a round trip, to name missing ranks.
void compare_signatures(const CheckPoint& check_point, const std::string& signature, Clock::time_point deadline);

}  // namespace hookline::group
