// TcpServer: the server of a TCP store, with its own thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <hookline/core/deadline.hpp>

#include "store/reject_reason.hpp"

namespace hookline::store {

/// Per-client resource limits.
///
/// A request must be complete within `request_timeout` plus its size / `min_bytes_per_second`; otherwise the server
/// closes the connection and frees its memory. A new connection must authenticate and send `validate` within
/// `handshake_timeout`. The server does not read requests of a client with more than `max_unsent_bytes` of unread
/// replies.
struct SessionLimits {
  Milliseconds handshake_timeout = std::chrono::seconds(10);
  Milliseconds request_timeout = std::chrono::seconds(30);
  std::size_t min_bytes_per_second = 64 * 1024;
  std::size_t max_unsent_bytes = 1024 * 1024;
  /// Limits on admitted connections and on those still in the handshake; 0 selects a share of the file descriptor
  /// limit.
  std::size_t max_connections = 0;
  std::size_t max_pending_connections = 0;
  Milliseconds keepalive = std::chrono::seconds(60);
  StoreQuota quota = {};
};

/// Access control of a server.
struct ServerAccess {
  /// The token that clients must prove to know; empty for PyTorch's plain protocol.
  std::string token = {};
  /// Allows listening beyond loopback without a token.
  bool allow_unauthenticated = false;
};

class TcpServer {
 public:
  /// Listens on every address of `host`, on all addresses, or on `listen_fd` only, which it then owns. Throws
  /// ResourceError if binding fails. Throws InvalidArgument, without taking ownership of `listen_fd`, if `listen_fd` is
  /// unsuitable or `access` does not allow a server without a token beyond loopback.
  TcpServer(const std::string& host, std::uint16_t port, bool all_interfaces, Milliseconds timeout,
            ServerAccess access = {}, SessionLimits limits = {}, std::optional<int> listen_fd = std::nullopt);
  /// Closes all connections immediately, including those of waiting clients.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  std::uint16_t port() const { return port_; }
  /// False in a forked child of the process that started the server.
  bool owned_by_this_process() const;
  /// Blocks until `workers` workers have registered or until the deadline. Returns the number of workers.
  std::int64_t await_workers(std::int64_t workers, Clock::time_point deadline);

 private:
  class EventLoop;
  std::uint16_t port_ = 0;
  std::uint64_t fork_generation_;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace hookline::store
