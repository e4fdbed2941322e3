// A store that a server process keeps and others reach over TCP; it speaks PyTorch's TCPStore protocol on both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hookline/store/store.hpp>

namespace hookline {

/// Limits of a TCPStore server, over all clients together. A client that exceeds a limit is refused or
/// disconnected, with a line on the server's stderr; the server goes on serving the others.
struct TCPStoreLimits {
  /// Connections at a time; 0 for five eighths of the process's limit on file descriptors.
  std::size_t max_connections = 0;
  /// Connections that have not finished the handshake; 0 for an eighth of that limit, at most 256. The oldest one makes
  /// room for a new one.
  std::size_t max_pending_connections = 0;
  /// The time that a connection has for the handshake.
  Milliseconds handshake_timeout = std::chrono::seconds(10);
  /// Keys, queues among them.
  std::size_t max_keys = std::size_t{512} * 1024;
  /// Bytes of keys and values, with 128 for each entry, and of keys that clients wait for. Unfinished requests and
  /// unread replies may take as much again.
  std::size_t max_bytes = std::size_t{256} * 1024 * 1024;
  /// Bytes of one value. The protocol allows 8 MiB a request, and 64 MiB for a value that grows by append.
  std::size_t max_value_bytes = std::size_t{64} * 1024 * 1024;
  /// On both sides: a peer that is silent for this long is probed by TCP, and its connection closed within as much
  /// again if its host does not answer. Whole seconds.
  Milliseconds keepalive = std::chrono::seconds(60);
};

/// How a process takes part in a TCP store: by default as a client.
struct TCPStoreOptions {
  /// Where the server is; with `is_master`, also the address that it listens on. A name or a number.
  std::string host = "127.0.0.1";
  /// The master may say 0 to get a free port, which port() tells.
  std::uint16_t port = 0;
  /// How many processes will come, the master among them.
  std::optional<int> world_size = {};
  /// Whether this process keeps the server. The server lives as long as this store and its clones.
  bool is_master = false;
  /// For connecting, for waiting for the workers, and afterwards as the store's timeout(). A shorter one than 2 s holds
  /// for waiting only: a server that does not answer at all is given up after 2 s, since the connection is lost then.
  Milliseconds timeout = Store::kDefaultStoreTimeout;
  /// Whether the constructor of the master returns only when `world_size` processes have connected.
  bool wait_for_workers = true;
  /// Whether the server listens on every address of this machine, not on `host` alone.
  bool listen_on_all_interfaces = false;
  /// A secret that all processes of the job share. Client and server prove to each other that they have it before the
  /// first request; the token itself is never sent. Where it is not given, HOOKLINE_TOKEN in the environment is taken.
  /// Without either, or with an empty one, PyTorch's plain protocol is spoken, as a client of PyTorch's server must.
  /// Choose it at random: a short one can be guessed from a recorded handshake.
  std::optional<std::string> token = std::nullopt;
  /// Permits the server to listen beyond loopback without a token, so that any host that reaches it is served.
  /// HOOKLINE_ALLOW_UNAUTHENTICATED=1 does the same.
  bool allow_unauthenticated = false;
  /// A master that is a tenant shares the server of the tenants that this process already has on `port`.
  bool multi_tenant = false;
  /// A bound TCP socket for the master's server, which owns it once it has accepted it; one that it refuses with
  /// InvalidArgument stays the caller's. `port` is its port or 0. A client ignores it.
  std::optional<int> master_listen_fd = std::nullopt;
  /// Apply to the server; `keepalive` applies to clients, too.
  TCPStoreLimits limits = {};
};

/// The constructor connects, and tries again until the timeout while nobody listens. It throws InvalidArgument for
/// options that cannot be (a server without a token that other hosts reach among them), ResourceError for a name that
/// does not resolve, an address that cannot be listened on or a token that is wrong or missing on one side, and
/// Timeout. A lost connection is PeerLost naming the address, at once for every later call. Threads that share one
/// store take turns at its connection: one that waits holds up the others, so a thread that waits long has a clone().
class HOOKLINE_EXPORT TCPStore final : public Store {
 public:
  explicit TCPStore(const TCPStoreOptions& options);
  ~TCPStore() override;

  /// The port of the server, also where the options said 0.
  std::uint16_t port() const;
  /// Returns when the server has answered.
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
  /// As in PyTorch, the key by which the master counts its workers is among them.
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
  /// Another connection to the same server.
  std::shared_ptr<Store> clone() const override;
  std::shared_ptr<Store> clone_for_waiting() const override { return clone(); }
  std::string host() const override;

 private:
  struct Parts;
  TCPStore(std::unique_ptr<Parts> parts, Milliseconds timeout);
  std::unique_ptr<Parts> parts_;
};

}  // namespace hookline
