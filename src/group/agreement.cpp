// compare_signatures: the arrival counter, and the exchange of full signatures after a difference.
#include "group/agreement.hpp"

#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/operation_kinds.hpp"
#include "core/hash.hpp"
#include "core/minority.hpp"

namespace hookline::group {
namespace {

constexpr int kNamedRanks = 31;
constexpr int kNamedShift = 32;    // high bits: one per rank; low bits: sum of hashes
constexpr int kCountedShift = 47;  // high bits: number of arrived ranks

bool names_ranks(int size) { return size <= kNamedRanks; }
int shift(int size) { return names_ranks(size) ? kNamedShift : kCountedShift; }

/// Truncated so that the sum over all ranks does not overflow into the arrival bits.
std::int64_t hash_of(const std::string& text, int size) {
  std::uint64_t hash = core::hash_of(text);
  hash ^= hash >> 32U;
  const int bits = shift(size) - (names_ranks(size) ? 5 : 16);
  return static_cast<std::int64_t>(hash & ((std::uint64_t{1} << static_cast<unsigned>(bits)) - 1));
}

std::int64_t arrival(int rank, int size) {
  return std::int64_t{1} << static_cast<unsigned>(shift(size) + (names_ranks(size) ? rank : 0));
}

std::int64_t everybody(int size) {
  return names_ranks(size) ? (std::int64_t{1} << static_cast<unsigned>(size)) - 1 : size;
}

std::string key_of(const Meeting& m, const char* kind, int rank) { return fmt::format("{}/{}{}", m.key, kind, rank); }

std::string list_key(const Meeting& m) { return m.key + "/come"; }

/// A store written in Python may lack append(); then missing ranks cannot be named.
void sign_list(const Meeting& m) {
  try {
    m.store.append(list_key(m), fmt::format("{},", m.rank));
  } catch (const Unsupported&) {
  }
}

/// Returns, by rank, whether it has arrived. The list is written by peers, so its items are validated.
std::vector<bool> come(const Meeting& m) {
  std::vector<bool> there(static_cast<std::size_t>(m.size));
  if (names_ranks(m.size)) {
    const std::int64_t bits = m.store.add(m.key, 0) >> static_cast<unsigned>(shift(m.size));
    for (std::size_t r = 0; r < there.size(); ++r) there[r] = (bits >> r & 1) != 0;
  } else if (m.store.check({list_key(m)})) {
    std::istringstream list(m.store.get(list_key(m)));
    for (std::string item; std::getline(list, item, ',');) {
      for (std::size_t r = 0; r < there.size(); ++r) there[r] = there[r] || item == std::to_string(r);
    }
  }
  return there;
}

[[noreturn]] void throw_absent(const Meeting& m, const std::string& text) {
  const std::vector<bool> there = come(m);
  std::vector<int> absent;
  for (std::size_t r = 0; r < there.size(); ++r) {
    if (!there[r]) absent.push_back(static_cast<int>(r));
  }
  const std::string who = fmt::format("rank{} {}", absent.size() == 1 ? "" : "s", fmt::join(absent, ", "));
  throw Timeout(fmt::format("{} on rank {} of {}: {} did not call any operation in time; this rank called {}", m.what,
                            m.rank, m.size, absent.size() == there.size() ? "some ranks" : who, text),
                absent.size() == there.size() ? std::vector<int>() : absent);
}

/// Exchanges the signatures through the store; the last rank to read them deletes the keys.
[[noreturn]] void throw_difference(const Meeting& m, const std::string& text, Clock::time_point deadline) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(m.size));
  for (int r = 0; r < m.size; ++r) keys.push_back(key_of(m, "call", r));
  m.store.set(keys[static_cast<std::size_t>(m.rank)], text);
  m.store.wait(keys, time_left(deadline));
  const auto texts = m.store.multi_get(keys);
  if (m.store.add(m.key + "/read", 1) == m.size) {
    for (const auto& key : keys) m.store.delete_key(key);
    m.store.delete_key(m.key + "/read");
  }
  std::string message = fmt::format("the ranks called different operations as {}:", m.what);
  for (int r = 0; r < m.size; ++r) message += fmt::format(" rank {}: {};", r, texts[static_cast<std::size_t>(r)]);
  message.back() = '.';
  throw Mismatch(message, core::minority(texts.size(), [&](auto a, auto b) { return texts[a] == texts[b]; }));
}

bool same_shapes(OpType type) { return type != OpType::alltoall && type != OpType::alltoall_base; }

}  // namespace

std::string common_part(const Collective& c) {
  // Uses the list that exists on every rank: scatter has inputs only at the root, reduce_scatter one input per rank.
  const bool by_output = c.type == OpType::scatter || c.type == OpType::reduce_scatter;
  std::string text(name(c.type));
  if (backend::is_reduction(c.type))
    text += fmt::format(" ({}{})", name(c.op), c.op.factor() == 1 ? "" : fmt::format(" {}", c.op.factor()));
  if (backend::is_rooted(c.type)) text += fmt::format(", root {}", c.root);
  const char* between = " of ";
  for (const Tensor& t : by_output ? c.outputs : sources(c)) {
    text += between;
    text += name(t.dtype());
    if (!same_shapes(c.type)) break;
    text += to_string(t.shape());
    between = ", ";
  }
  return text;
}

void agree(const Meeting& m, const std::string& text, Clock::time_point deadline) {
  const std::int64_t mine = hash_of(text, m.size);
  if (!names_ranks(m.size)) sign_list(m);
  const std::int64_t sum = m.store.add(m.key, arrival(m.rank, m.size) + mine);
  const auto above = static_cast<unsigned>(shift(m.size));
  bool same;
  if (sum >> above == everybody(m.size)) {
    same = (sum & ((std::int64_t{1} << above) - 1)) == mine * m.size;
    std::vector<std::string> keys;
    for (int r = 0; r < m.size; ++r) {
      if (r != m.rank) keys.push_back(key_of(m, "go", r));
    }
    m.store.delete_key(m.key);
    if (!names_ranks(m.size)) m.store.delete_key(list_key(m));
    m.store.multi_set(keys, std::vector<std::string>(keys.size(), same ? "1" : "0"));
  } else {
    const std::string key = key_of(m, "go", m.rank);
    try {
      m.store.wait({key}, time_left(deadline));
    } catch (const Timeout&) {
      if (!m.store.check({key})) throw_absent(m, text);
    }
    same = m.store.get(key) == "1";
    m.store.delete_key(key);
  }
  if (!same) throw_difference(m, text, deadline);
}

}  // namespace hookline::group
