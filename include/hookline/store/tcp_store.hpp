// TCPStore: a store served by one process over TCP. Client and server speak PyTorch's TCPStore protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hookline/store/store.hpp>

namespace hookline {

/// Limits of a TCPStore server, for all clients together. The server rejects or disconnects a client that exceeds a
/// limit and logs a line to stderr; other clients are not affected.
struct TCPStoreLimits {
  /// Concurrent connections; 0 means 5/8 of the process's file descriptor limit.
  std::size_t max_connections = 0;
  /// Connections that have not finished the handshake; 0 means 1/8 of the file descriptor limit, at most 256. A new
  /// connection replaces the oldest one.
  std::size_t max_pending_connections = 0;
  /// The time limit for the handshake of a connection.
  Milliseconds handshake_timeout = std::chrono::seconds(10);
  /// Keys, including queues.
  std::size_t max_keys = std::size_t{512} * 1024;
  /// Bytes of keys and values, with 128 bytes per entry, and of keys that clients wait for. Unfinished requests and
  /// unread replies have a separate limit of the same size.
  std::size_t max_bytes = std::size_t{256} * 1024 * 1024;
  /// Bytes of one value. The protocol allows 8 MiB per request, and 64 MiB for a value that grows by append.
  std::size_t max_value_bytes = std::size_t{64} * 1024 * 1024;
  /// TCP keepalive of client and server, in whole seconds. The kernel probes a peer that is silent for this time. If
  /// the peer's host does not answer, the kernel closes the connection after at most the same time again.
  Milliseconds keepalive = std::chrono::seconds(60);
};

/// The options of a TCPStore; by default those of a client.
struct TCPStoreOptions {
  /// The name or address of the server; with `is_master`, also the address to listen on.
  std::string host = "127.0.0.1";
  /// The port of the server. For the master, 0 selects a free port; see port().
  std::uint16_t port = 0;
  /// The number of processes that will connect, including the master.
  std::optional<int> world_size = {};
  /// True if this process runs the server. The server lives as long as this store and its clones.
  bool is_master = false;
  /// The timeout for connecting, for `wait_for_workers`, and for the operations of the store. Below 2 s it applies only
  /// to waiting for keys: the client allows at least 2 s for other replies, since a late reply breaks the connection.
  Milliseconds timeout = Store::kDefaultStoreTimeout;
  /// True if the master's constructor blocks until `world_size` processes have connected.
  bool wait_for_workers = true;
  /// True if the server listens on all addresses of this machine instead of `host`.
  bool listen_on_all_interfaces = false;
  /// The shared secret of the job; the default is the environment variable HOOKLINE_TOKEN. Client and server prove to
  /// each other that they know it, without sending it. An empty token selects PyTorch's plain protocol, the
  /// only one that PyTorch's server supports. Use a long random token: an attacker can guess a short one from a
  /// recorded handshake.
  std::optional<std::string> token = std::nullopt;
  /// Allows the server to listen beyond loopback without a token, and thus to serve any host that can reach it. The
  /// environment variable HOOKLINE_ALLOW_UNAUTHENTICATED=1 has the same effect.
  bool allow_unauthenticated = false;
  /// Shares one server on `port` among all masters of this process that set this option.
  bool multi_tenant = false;
  /// A bound TCP socket for the server, which takes ownership unless the constructor throws InvalidArgument. `port` is
  /// its port or 0. Clients ignore it.
  std::optional<int> master_listen_fd = std::nullopt;
  /// The limits of the server. `keepalive` also applies to clients.
  TCPStoreLimits limits = {};
};

/// A client of a TCP store server, and with `is_master` the server itself.
///
/// The constructor retries the connection until the timeout. It throws InvalidArgument for invalid options (including a
/// server beyond loopback without a token), ResourceError if the name does not resolve, the address cannot be bound, or
/// the token is wrong or missing on one side, and Timeout. After a lost connection every call throws PeerLost. Threads
/// that share a TCPStore share its connection, and a wait blocks the others: use clone() for long waits.
class HOOKLINE_EXPORT TCPStore final : public Store {
 public:
  explicit TCPStore(const TCPStoreOptions& options);
  ~TCPStore() override;

  /// Returns the port of the server.
  std::uint16_t port() const;
  /// Blocks until the server has answered a ping.
  void ping();

  std::string describe() const override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  using Store::wait;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  bool check(const std::vector<std::string>& keys) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  /// Includes the key of the worker counter, as in PyTorch.
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  void append(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  void queue_push(const std::string& key, const std::string& value) override;
  std::string queue_pop(const std::string& key, bool block = true) override;
  std::int64_t queue_len(const std::string& key) override;
  void barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout) override;
  bool has_extended_api() const override { return true; }
  /// Opens another connection to the same server.
  std::shared_ptr<Store> clone() const override;
  std::shared_ptr<Store> clone_for_waiting() const override { return clone(); }
  std::string host() const override;

 private:
  struct Impl;
  TCPStore(std::unique_ptr<Impl> impl, Milliseconds timeout);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hookline
