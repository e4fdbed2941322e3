// What a store server does with a request: the table, who waits, and the bytes of the reply. No I/O.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/table.hpp"
#include "store/waiters.hpp"
#include "store/wire.hpp"

namespace hookline::store {

class Service {
 public:
  /// Serves a request of an admitted client and appends the reply, if there is one now. False where the client has
  /// broken the rules and is to be disconnected: the protocol has no other way to refuse.
  bool serve(ClientId client, const Request& request, std::string& reply);
  /// The client is gone.
  void forget(ClientId client) { waiters_.cancel(client); }
  /// The clients that are to be sent WaitReply::stop_waiting.
  std::vector<ClientId> take_woken() { return waiters_.take_woken(); }
  /// How many workers have made themselves known.
  std::int64_t workers() const { return workers_; }

 private:
  bool serve_add(const Request& request, std::string& reply);
  bool serve_wait(ClientId client, const Request& request, std::string& reply);
  bool serve_values(const Request& request, std::string& reply);
  bool serve_keys(std::string& reply);

  Table table_;
  Waiters waiters_;
  std::int64_t workers_ = 0;
};

}  // namespace hookline::store
