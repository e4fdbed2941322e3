// Store: default implementations of operations.
#include <hookline/store/store.hpp>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "store/store_error.hpp"

namespace hookline {

namespace {

[[noreturn]] void throw_unsupported(const Store& store, const char* operation) {
  throw Unsupported(
      fmt::format("{} on {}: Not implemented. Define {} in the class.", operation, store.describe(), operation));
}

}  // namespace

Store::~Store() = default;

std::string Store::compare_set(const std::string&, const std::string&, const std::string&) {
  throw_unsupported(*this, "compare_set");
}
std::vector<std::string> Store::list_keys() { throw_unsupported(*this, "list_keys"); }
void Store::queue_push(const std::string&, const std::string&) { throw_unsupported(*this, "queue_push"); }
std::string Store::queue_pop(const std::string&, bool) { throw_unsupported(*this, "queue_pop"); }
std::int64_t Store::queue_len(const std::string&) { throw_unsupported(*this, "queue_len"); }

std::shared_ptr<Store> Store::clone() const { throw_unsupported(*this, "clone"); }

// Reads with compare_set, since get blocks for a missing key. A single compare_set("", value) could not distinguish
// a value set here from an equal existing one.
void Store::append(const std::string& key, const std::string& value) {
  std::string current = compare_set(key, "", "");
  while (true) {
    const std::string longer = current + value;
    std::string now = compare_set(key, current, longer);
    if (now == longer) return;
    if (now == current) now.clear();  // deleted concurrently
    current = std::move(now);
  }
}

std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys) {
  wait(keys, timeout());
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(get(key));
  return values;
}

void Store::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  store::check_one_value_per_key(*this, keys, values);
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

void Store::barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout) {
  store::check_world_size(*this, key, world_size);
  const std::int64_t arrived = add(key + "/num_members", 1);
  const std::int64_t round = (arrived - 1) / world_size;
  // The keys of the first round are PyTorch's, so that its stores interoperate; they do not support further rounds.
  const auto release_key = [&key](std::int64_t number) {
    return number == 0 ? key + "/last_member" : fmt::format("{}/last_member/{}", key, number);
  };
  if (arrived % world_size != 0) {
    try {
      return wait({release_key(round)}, timeout);
    } catch (const Timeout&) {
      store::throw_barrier_timeout(*this, key, timeout, std::current_exception());
    }
  }
  set(release_key(round), "1");
  // All callers have left the previous round.
  if (round > 0) delete_key(release_key(round - 1));
}

}  // namespace hookline
