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

bool Waiters::arrive_at_barrier(ClientId client, std::string_view key, std::int64_t world_size) {
  std::string name(key);
  std::vector<ClientId>& waiting = by_barrier_[name];
  if (static_cast<std::int64_t>(waiting.size()) + 1 < world_size) {
    waiting.push_back(client);
    add(client, Wait{{std::move(name)}, 0, true});
    return false;
  }
  for (const ClientId other : waiting) wake(other);
  by_barrier_.erase(name);
  return true;
}

void Waiters::cancel(ClientId client) {
  if (!is_waiting(client)) return;
  const Wait wait = remove(client);
  for (const std::string& key : wait.keys) remove_from(wait.at_barrier ? by_barrier_ : by_key_, key, client);
}

void Waiters::remove_from(ClientsByKey& clients_by_key, const std::string& key, ClientId client) {
  const auto found = clients_by_key.find(key);
  if (found == clients_by_key.end()) return;
  std::erase(found->second, client);
  if (found->second.empty()) clients_by_key.erase(found);
}

void Waiters::wake(ClientId client) {
  remove(client);
  woken_.push_back(client);
}

// Counts one awaited key as set. Wakes the client and returns true if it was the last one.
bool Waiters::decrement_missing(ClientId client) {
  if (--waits_.at(client).missing > 0) return false;
  wake(client);
  return true;
}

void Waiters::on_key_set(std::string_view key) {
  if (by_key_.empty()) return;
  const auto found = by_key_.find(std::string(key));
  if (found == by_key_.end()) return;
  const std::vector<ClientId> waiting = std::move(found->second);
  by_key_.erase(found);
  for (const ClientId client : waiting) decrement_missing(client);
}

void Waiters::on_queue_push(std::string_view key) {
  if (by_key_.empty()) return;
  const auto found = by_key_.find(std::string(key));
  if (found == by_key_.end()) return;
  std::vector<ClientId>& waiting = found->second;
  std::size_t visited = 0;
  for (bool served = false; visited < waiting.size() && !served; ++visited)
    served = decrement_missing(waiting[visited]);
  waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(visited));
  if (waiting.empty()) by_key_.erase(found);
}

std::vector<ClientId> Waiters::take_woken() { return std::exchange(woken_, {}); }

}  // namespace hookline::store
