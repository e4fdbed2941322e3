// StoreService: executes store requests and produces the replies. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/reject_reason.hpp"
#include "store/table.hpp"
#include "store/waiters.hpp"
#include "store/wire.hpp"

namespace hookline::store {

class StoreService {
 public:
  explicit StoreService(StoreQuota quota = {}) : quota_(quota) {}

  /// Executes a request and appends its reply, if it is due now. Returns false if the client violated the protocol or a
  /// limit and must be disconnected, since the protocol has no error replies.
  bool serve(ClientId client, const Request& request, std::string& reply);
  /// Returns and clears the limit that the last rejected request would have exceeded, if any.
  std::optional<RejectReason> take_reject_reason() { return std::exchange(reject_reason_, std::nullopt); }
  /// Removes a disconnected client.
  void remove_client(ClientId client) { waiters_.cancel(client); }
  /// Returns and clears the list of clients whose wait has ended. The caller sends each WaitReply::stop_waiting.
  std::vector<ClientId> take_woken() { return waiters_.take_woken(); }
  /// Returns the number of workers that have registered.
  std::int64_t workers() const { return workers_; }

 private:
  bool write(std::string_view key, std::string_view value);
  bool append(std::string_view key, std::string_view value);
  bool push(std::string_view key, std::string_view value);
  /// True if the quota allows a value of `size` bytes that needs `added` bytes of memory and frees `freed`.
  bool within_quota(bool new_key, std::size_t size, std::size_t added, std::size_t freed = 0);
  /// True if the quota allows replacing the value of `key` by one of `size` bytes.
  bool value_within_quota(std::string_view key, std::size_t size);
  bool serve_add(const Request& request, std::string& reply);
  bool serve_wait(ClientId client, const Request& request, std::string& reply);
  bool serve_values(const Request& request, std::string& reply);
  bool serve_keys(std::string& reply);

  const StoreQuota quota_;
  std::optional<RejectReason> reject_reason_;
  Table table_;
  Waiters waiters_;
  std::int64_t workers_ = 0;
};

}  // namespace hookline::store
