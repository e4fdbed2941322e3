// Waiters.
#include "store/waiters.hpp"

#include <utility>

namespace hookline::store {

void Waiters::wait(ClientId client, std::vector<std::string> missing_keys) {
  for (const std::string& key : missing_keys) by_key_[key].push_back(client);
  const std::size_t missing = missing_keys.size();
  add(client, Wait{std::move(missing_keys), missing, false});
}

void Waiters::add(ClientId client, Wait wait) {
  for (const std::string& key : wait.keys) wait.bytes += kWaitBytes + 2 * key.size();
  bytes_ += wait.bytes;
  waits_[client] = std::move(wait);
}

Waiters::Wait Waiters::remove(ClientId client) {
  const auto found = waits_.find(client);
  Wait wait = std::move(found->second);
  bytes_ -= wait.bytes;
  waits_.erase(found);
  return wait;
}

bool Waiters::arrive(ClientId client, std::string_view key, std::int64_t world_size) {
  std::string name(key);
  std::vector<ClientId>& here = at_barrier_[name];
  if (static_cast<std::int64_t>(here.size()) + 1 < world_size) {
    here.push_back(client);
    add(client, Wait{{std::move(name)}, 0, true});
    return false;
  }
  for (const ClientId other : here) wake(other);
  at_barrier_.erase(name);
  return true;
}

void Waiters::cancel(ClientId client) {
  if (!waits(client)) return;
  const Wait wait = remove(client);
  for (const std::string& key : wait.keys) leave(wait.at_barrier ? at_barrier_ : by_key_, key, client);
}

void Waiters::leave(Places& places, const std::string& key, ClientId client) {
  const auto found = places.find(key);
  if (found == places.end()) return;
  std::erase(found->second, client);
  if (found->second.empty()) places.erase(found);
}

void Waiters::wake(ClientId client) {
  remove(client);
  woken_.push_back(client);
}

// Counts one awaited key as set. Wakes the client and returns true if it was the last one.
bool Waiters::one_less(ClientId client) {
  if (--waits_.at(client).missing > 0) return false;
  wake(client);
  return true;
}

void Waiters::key_came(std::string_view key) {
  if (by_key_.empty()) return;
  const auto found = by_key_.find(std::string(key));
  if (found == by_key_.end()) return;
  const std::vector<ClientId> here = std::move(found->second);
  by_key_.erase(found);
  for (const ClientId client : here) one_less(client);
}

void Waiters::element_came(std::string_view key) {
  if (by_key_.empty()) return;
  const auto found = by_key_.find(std::string(key));
  if (found == by_key_.end()) return;
  std::vector<ClientId>& here = found->second;
  std::size_t seen = 0;
  for (bool served = false; seen < here.size() && !served; ++seen) served = one_less(here[seen]);
  here.erase(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(seen));
  if (here.empty()) by_key_.erase(found);
}

std::vector<ClientId> Waiters::take_woken() { return std::exchange(woken_, {}); }

}  // namespace hookline::store
