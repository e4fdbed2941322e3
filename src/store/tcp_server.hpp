// The server of a TCP store: a thread of its own that keeps the table and answers every client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <hookline/core/deadline.hpp>

#include "store/refusal.hpp"

namespace hookline::store {

/// What one client may cost the server.
///
/// A request must have come in full after `grace` and the time that its bytes take at `slowest` bytes a second: a
/// client that stops in the middle of one loses its connection, and the server gets the memory back. (What such a
/// client holds is bytes that it really sent; a whole request would hold them for good.) A new connection has
/// `handshake` to authenticate and to open the protocol. While more than `unsent` bytes of replies wait for a client to
/// read them, its requests are not read.
struct SessionLimits {
  Milliseconds handshake = std::chrono::seconds(10);
  Milliseconds grace = std::chrono::seconds(30);
  std::size_t slowest = 64 * 1024;
  std::size_t unsent = 1024 * 1024;
  /// Connections that have opened, and those that have not; 0 for a share of the limit on file descriptors.
  std::size_t connections = 0;
  std::size_t pending = 0;
  Milliseconds keepalive = std::chrono::seconds(60);
  StoreQuota quota = {};
};

/// The clients that a server accepts.
struct ServerAccess {
  /// Clients must prove that they have the same one; empty for PyTorch's plain protocol.
  std::string token = {};
  /// Permits an address beyond loopback without a token.
  bool allow_unauthenticated = false;
};

class TcpServer {
 public:
  /// Listens on every address of `host`, or of this machine; or on `listen_fd` alone, which it then owns. Throws
  /// ResourceError where that is not to be had, and InvalidArgument where other hosts would reach a server without a
  /// token that `access` does not allow, or `listen_fd` cannot be taken over; it then stays the caller's.
  TcpServer(const std::string& host, std::uint16_t port, bool all_interfaces, Milliseconds timeout,
            ServerAccess access = {}, SessionLimits limits = {}, std::optional<int> listen_fd = std::nullopt);
  /// Closes every connection at once, whoever waits on it.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  std::uint16_t port() const { return port_; }
  /// False in a child that was forked after the server started.
  bool runs_here() const;
  /// Returns when so many workers have made themselves known, or at the deadline; how many have.
  std::int64_t await_workers(std::int64_t workers, Clock::time_point deadline);

 private:
  class Loop;
  std::uint16_t port_ = 0;
  std::uint64_t fork_generation_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace hookline::store
