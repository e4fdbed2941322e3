// Waiters: the clients of a store server that wait for keys or at barriers. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hookline::store {

using ClientId = std::uint64_t;

/// Tracks waiting clients. A client has at most one wait at a time: for a set of keys, or at a barrier.
class Waiters {
 public:
  bool is_waiting(ClientId client) const { return waits_.contains(client); }
  void wait(ClientId client, std::vector<std::string> missing_keys);
  /// Enters a barrier. Returns true if that completes it; the other clients are then woken. Returns false if the client
  /// has to wait.
  bool arrive_at_barrier(ClientId client, std::string_view key, std::int64_t world_size);
  /// Cancels a client's wait, if any. Its barrier no longer counts the client.
  void cancel(ClientId client);

  /// Call after a key was set. Wakes the clients that now have all their keys.
  void on_key_set(std::string_view key);
  /// Call after an element was pushed to a queue. Wakes at most one client.
  void on_queue_push(std::string_view key);

  /// Returns the clients woken since the last call.
  std::vector<ClientId> take_woken();

  /// The estimated memory of a wait for one key, in addition to twice the size of the key.
  static constexpr std::size_t kWaitBytes = 256;
  /// Returns the estimated memory of all waits.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Wait {
    std::vector<std::string> keys;
    std::size_t missing = 0;
    bool at_barrier = false;
    std::size_t bytes = 0;
  };
  using ClientsByKey = std::unordered_map<std::string, std::vector<ClientId>>;

  void remove_from(ClientsByKey& clients_by_key, const std::string& key, ClientId client);
  bool decrement_missing(ClientId client);
  void wake(ClientId client);
  void add(ClientId client, Wait wait);
  /// The client must be waiting.
  Wait remove(ClientId client);

  std::size_t bytes_ = 0;
  std::unordered_map<ClientId, Wait> waits_;
  ClientsByKey by_key_;
  ClientsByKey by_barrier_;
  std::vector<ClientId> woken_;
};

}  // namespace hookline::store
