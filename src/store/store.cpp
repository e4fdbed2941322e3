// The store seam: what all stores have in common, and the operations that can be built from others.
#include <hookline/store/store.hpp>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "store/store_error.hpp"

namespace hookline {

namespace {

[[noreturn]] void throw_unsupported(const Store& store, const char* operation) {
  throw Unsupported(
      fmt::format("{} has no {}; use a MemoryStore, FileStore or TCPStore for it", store.describe(), operation));
}

}  // namespace

Store::~Store() = default;

std::string Store::compare_set(const std::string&, const std::string&, const std::string&) {
  throw_unsupported(*this, "compare_set");
}
std::vector<std::string> Store::list_keys() { throw_unsupported(*this, "list_keys"); }
void Store::append(const std::string&, const std::string&) { throw_unsupported(*this, "append"); }
void Store::queue_push(const std::string&, const std::string&) { throw_unsupported(*this, "queue_push"); }
std::string Store::queue_pop(const std::string&, bool) { throw_unsupported(*this, "queue_pop"); }
std::int64_t Store::queue_len(const std::string&) { throw_unsupported(*this, "queue_len"); }

std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys) {
  wait(keys, timeout());
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

void Store::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  store::check_pairs(*this, keys, values);
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

void Store::barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout) {
  store::check_world_size(*this, key, world_size);
  const std::int64_t arrived = add(key + "/num_members", 1);
  const std::int64_t round = (arrived - 1) / world_size;
  // The first round's keys are those of PyTorch, whose stores may take part in it; they know no further rounds.
  const auto open = [&key](std::int64_t number) {
    return number == 0 ? key + "/last_member" : fmt::format("{}/last_member/{}", key, number);
  };
  if (arrived % world_size != 0) return wait({open(round)}, timeout);
  set(open(round), "1");
  // Everybody is in this round, so nobody waits in the one before any more.
  if (round > 0) delete_key(open(round - 1));
}

}  // namespace hookline
