// Which clients of a store server wait for which keys, and who is to be woken when one comes. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hookline::store {

using ClientId = std::uint64_t;

/// A client waits for one thing at a time: a number of keys, or a barrier.
class Waiters {
 public:
  bool waits(ClientId client) const { return waits_.contains(client); }
  void wait(ClientId client, std::vector<std::string> missing_keys);
  /// Comes to a barrier; where that completes it, everybody who waits there is woken and this client is not among the
  /// waiting. False where it has to wait.
  bool arrive(ClientId client, std::string_view key, std::int64_t world_size);
  /// Ends a client's wait, if it has one; at a barrier it is as if it had never come.
  void cancel(ClientId client);

  /// A key has a value now.
  void key_came(std::string_view key);
  /// A queue has one element more, for which one client is enough.
  void element_came(std::string_view key);

  /// Those whose wait is over, since the last call.
  std::vector<ClientId> take_woken();

  /// An estimate of the memory that waiting for one key needs, beside twice the key.
  static constexpr std::size_t kWaitBytes = 256;
  /// The memory that all waits need, by that estimate.
  std::size_t bytes() const { return bytes_; }

 private:
  struct Wait {
    std::vector<std::string> keys;
    std::size_t missing = 0;
    bool at_barrier = false;
    std::size_t bytes = 0;
  };
  using Places = std::unordered_map<std::string, std::vector<ClientId>>;

  void leave(Places& places, const std::string& key, ClientId client);
  bool one_less(ClientId client);
  void wake(ClientId client);
  void add(ClientId client, Wait wait);
  /// The client must wait.
  Wait remove(ClientId client);

  std::size_t bytes_ = 0;
  std::unordered_map<ClientId, Wait> waits_;
  Places by_key_;
  Places at_barrier_;
  std::vector<ClientId> woken_;
};

}  // namespace hookline::store
