// What a store server does with a request: the table, who waits, and the bytes of the reply. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/refusal.hpp"
#include "store/table.hpp"
#include "store/waiters.hpp"
#include "store/wire.hpp"

namespace hookline::store {

class Service {
 public:
  explicit Service(StoreQuota quota = {}) : quota_(quota) {}

  /// Serves a request of an admitted client and appends the reply, if there is one now. False where the client has
  /// broken the rules and is to be disconnected: the protocol has no other way to refuse.
  bool serve(ClientId client, const Request& request, std::string& reply);
  /// Returns the limit that the last request which was not served would have exceeded, if that was the reason.
  std::optional<Refusal> take_refusal() { return std::exchange(refusal_, std::nullopt); }
  /// The client is gone.
  void forget(ClientId client) { waiters_.cancel(client); }
  /// The clients that are to be sent WaitReply::stop_waiting.
  std::vector<ClientId> take_woken() { return waiters_.take_woken(); }
  /// How many workers have made themselves known.
  std::int64_t workers() const { return workers_; }

 private:
  bool write(std::string_view key, std::string_view value);
  bool append(std::string_view key, std::string_view value);
  bool push(std::string_view key, std::string_view value);
  /// Returns true if the quota allows a value of `size` bytes that needs `added` bytes of memory and frees `freed`.
  bool admits(bool new_key, std::size_t size, std::size_t added, std::size_t freed = 0);
  /// The same for a value of `size` bytes under `key`, in the place of one that is there.
  bool admits_value(std::string_view key, std::size_t size);
  bool serve_add(const Request& request, std::string& reply);
  bool serve_wait(ClientId client, const Request& request, std::string& reply);
  bool serve_values(const Request& request, std::string& reply);
  bool serve_keys(std::string& reply);

  const StoreQuota quota_;
  std::optional<Refusal> refusal_;
  Table table_;
  Waiters waiters_;
  std::int64_t workers_ = 0;
};

}  // namespace hookline::store
