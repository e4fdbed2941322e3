// compare_signatures: the arrival counter, and the exchange of full signatures after a difference.
#include "group/compare_signatures.hpp"

#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/op_traits.hpp"
#include "core/hash.hpp"
#include "core/minority.hpp"

namespace hookline::group {
namespace {

constexpr int kMaxBitmaskRanks = 31;
constexpr int kBitmaskShift = 32;  // high bits: one per rank; low bits: sum of hashes
constexpr int kCountShift = 47;    // high bits: number of arrived ranks

bool fits_bitmask(int size) { return size <= kMaxBitmaskRanks; }
int arrival_shift(int size) { return fits_bitmask(size) ? kBitmaskShift : kCountShift; }

/// Returns a hash that is short enough that the sum over all ranks does not overflow into the arrival bits.
std::int64_t truncated_hash(const std::string& text, int size) {
  std::uint64_t hash = core::hash_bytes(text);
  hash ^= hash >> 32U;
  const int bits = arrival_shift(size) - (fits_bitmask(size) ? 5 : 16);
  return static_cast<std::int64_t>(hash & ((std::uint64_t{1} << static_cast<unsigned>(bits)) - 1));
}

std::int64_t arrival_increment(int rank, int size) {
  return std::int64_t{1} << static_cast<unsigned>(arrival_shift(size) + (fits_bitmask(size) ? rank : 0));
}

std::int64_t all_arrived(int size) {
  return fits_bitmask(size) ? (std::int64_t{1} << static_cast<unsigned>(size)) - 1 : size;
}

std::string key_of(const CheckPoint& check_point, const char* kind, int rank) {
  return fmt::format("{}/{}{}", check_point.key, kind, rank);
}

std::string arrival_list_key(const CheckPoint& check_point) { return check_point.key + "/arrived"; }

/// Records the arrival, so that a timeout can name the missing ranks. A store without append() cannot name them.
void append_to_arrival_list(const CheckPoint& check_point) {
  try {
    check_point.store.append(arrival_list_key(check_point), fmt::format("{},", check_point.rank));
  } catch (const Unsupported&) {
  }
}

/// Returns a flag for each rank that is true if the rank has arrived. Ignores invalid items of the list, which peers
/// write.
std::vector<bool> arrived_ranks(const CheckPoint& check_point) {
  std::vector<bool> arrived(static_cast<std::size_t>(check_point.size));
  if (fits_bitmask(check_point.size)) {
    const std::int64_t bits =
        check_point.store.add(check_point.key, 0) >> static_cast<unsigned>(arrival_shift(check_point.size));
    for (std::size_t r = 0; r < arrived.size(); ++r) arrived[r] = (bits >> r & 1) != 0;
  } else if (check_point.store.check({arrival_list_key(check_point)})) {
    std::istringstream list(check_point.store.get(arrival_list_key(check_point)));
    for (std::string item; std::getline(list, item, ',');) {
      for (std::size_t r = 0; r < arrived.size(); ++r) arrived[r] = arrived[r] || item == std::to_string(r);
    }
  }
  return arrived;
}

[[noreturn]] void throw_missing_ranks(const CheckPoint& check_point, const std::string& signature) {
  const std::vector<bool> arrived = arrived_ranks(check_point);
  std::vector<int> missing;
  for (std::size_t r = 0; r < arrived.size(); ++r) {
    if (!arrived[r]) missing.push_back(static_cast<int>(r));
  }
  const std::string missing_text = fmt::format("rank{} {}", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
  throw Timeout(fmt::format("{} on rank {} of {}: {} did not call any operation in time; this rank called {}",
                            check_point.label, check_point.rank, check_point.size,
                            missing.size() == arrived.size() ? "some ranks" : missing_text, signature),
                missing.size() == arrived.size() ? std::vector<int>() : missing);
}

/// Exchanges the signatures through the store; the last rank to read them deletes the keys.
[[noreturn]] void throw_mismatch(const CheckPoint& check_point, const std::string& signature,
                                 Clock::time_point deadline) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(check_point.size));
  for (int r = 0; r < check_point.size; ++r) keys.push_back(key_of(check_point, "call", r));
  check_point.store.set(keys[static_cast<std::size_t>(check_point.rank)], signature);
  check_point.store.wait(keys, time_left(deadline));
  const auto signatures = check_point.store.multi_get(keys);
  if (check_point.store.add(check_point.key + "/read", 1) == check_point.size) {
    for (const auto& key : keys) check_point.store.delete_key(key);
    check_point.store.delete_key(check_point.key + "/read");
  }
  std::string message = fmt::format("the ranks called different operations ({}):", check_point.label);
  for (int r = 0; r < check_point.size; ++r)
    message += fmt::format(" rank {}: {};", r, signatures[static_cast<std::size_t>(r)]);
  message.back() = '.';
  throw Mismatch(message,
                 core::minority(signatures.size(), [&](auto a, auto b) { return signatures[a] == signatures[b]; }));
}

bool requires_same_shapes(OpType type) { return type != OpType::alltoall && type != OpType::alltoall_base; }

}  // namespace

std::string signature_text(const Operation& operation) {
  // Uses the list that exists on every rank: scatter has inputs only at the root, reduce_scatter one input per rank.
  const bool by_output = operation.type == OpType::scatter || operation.type == OpType::reduce_scatter;
  std::string text(name(operation.type));
  if (backend::is_reduction(operation.type))
    text += fmt::format(" ({}{})", name(operation.op),
                        operation.op.factor() == 1 ? "" : fmt::format(" {}", operation.op.factor()));
  if (backend::is_rooted(operation.type)) text += fmt::format(", root {}", operation.root);
  const char* separator = " of ";
  for (const Tensor& t : by_output ? operation.outputs : source_tensors(operation)) {
    text += separator;
    text += name(t.dtype());
    if (!requires_same_shapes(operation.type)) break;
    text += to_string(t.shape());
    separator = ", ";
  }
  return text;
}

void compare_signatures(const CheckPoint& check_point, const std::string& signature, Clock::time_point deadline) {
  const std::int64_t own_hash = truncated_hash(signature, check_point.size);
  if (!fits_bitmask(check_point.size)) append_to_arrival_list(check_point);
  const std::int64_t sum =
      check_point.store.add(check_point.key, arrival_increment(check_point.rank, check_point.size) + own_hash);
  const auto count_shift = static_cast<unsigned>(arrival_shift(check_point.size));
  bool all_equal;
  if (sum >> count_shift == all_arrived(check_point.size)) {
    all_equal = (sum & ((std::int64_t{1} << count_shift) - 1)) == own_hash * check_point.size;
    std::vector<std::string> keys;
    for (int r = 0; r < check_point.size; ++r) {
      if (r != check_point.rank) keys.push_back(key_of(check_point, "go", r));
    }
    check_point.store.delete_key(check_point.key);
    if (!fits_bitmask(check_point.size)) check_point.store.delete_key(arrival_list_key(check_point));
    check_point.store.multi_set(keys, std::vector<std::string>(keys.size(), all_equal ? "1" : "0"));
  } else {
    const std::string key = key_of(check_point, "go", check_point.rank);
    try {
      check_point.store.wait({key}, time_left(deadline));
    } catch (const Timeout&) {
      if (!check_point.store.check({key})) throw_missing_ranks(check_point, signature);
    }
    all_equal = check_point.store.get(key) == "1";
    check_point.store.delete_key(key);
  }
  if (!all_equal) throw_mismatch(check_point, signature, deadline);
}

}  // namespace hookline::group
