// TCPStore: the requests of each operation, with the minimum number of round trips.
#include <hookline/store/tcp_store.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "store/store_error.hpp"
#include "store/table.hpp"
#include "store/tcp_call.hpp"
#include "store/tcp_server.hpp"
#include "store/token.hpp"

namespace hookline {

using store::Query;
using store::RequestBuilder;
using store::TcpCall;

struct TCPStore::Impl {
  Impl(std::string host_name, std::uint16_t port_number, Milliseconds timeout,
       std::shared_ptr<store::TcpServer> kept_server, store::ClientOptions client_options)
      : host(std::move(host_name)),
        port(port_number),
        options(std::move(client_options)),
        server(std::move(kept_server)) {
    connection.client = std::make_unique<store::TcpClient>(host, port, timeout, options);
  }

  /// Sends a query with a key and a value that has no reply.
  void send_key_value(const TCPStore& self, const char* operation, Query query, const std::string& key,
                      const std::string& value) {
    store::require_value(self, key, value);
    TcpCall call(connection, self, operation, key, self.timeout());
    call.send(RequestBuilder(query).key(key).text(value));
  }

  std::string host;
  std::uint16_t port;
  store::ClientOptions options;
  std::shared_ptr<store::TcpServer> server;  // null if another process serves; outlives the connection
  store::TcpConnection connection;
};

namespace {

// The timeout of the reconnect that determines why the server closed the connection.
constexpr Milliseconds kReconnectTimeout = std::chrono::seconds(1);
// A push wakes only one client, as in PyTorch. That client may not pop, or may have disconnected, so pops retry.
constexpr Milliseconds kPopRetryInterval = std::chrono::seconds(1);

store::SessionLimits limits_of(const TCPStoreLimits& limits) {
  if (limits.handshake_timeout <= Milliseconds(0) || limits.keepalive <= Milliseconds(0)) {
    throw InvalidArgument("TCPStore: handshake_timeout and keepalive must be positive");
  }
  return {.handshake_timeout = limits.handshake_timeout,
          .max_connections = limits.max_connections,
          .max_pending_connections = limits.max_pending_connections,
          .keepalive = limits.keepalive,
          .quota = {limits.max_keys, limits.max_bytes, limits.max_value_bytes}};
}

std::shared_ptr<store::TcpServer> new_server(const TCPStoreOptions& options) {
  const bool open = options.allow_unauthenticated || store::environment_allows_unauthenticated();
  return std::make_shared<store::TcpServer>(options.host, options.port, options.listen_on_all_interfaces,
                                            options.timeout,
                                            store::ServerAccess{store::token_or_environment(options.token), open},
                                            limits_of(options.limits), options.master_listen_fd);
}

/// Returns this process's multi-tenant server on the port, or starts one.
std::shared_ptr<store::TcpServer> shared_tenant_server(const TCPStoreOptions& options) {
  static std::recursive_mutex mutex;  // recursive, since a signal handler may call this function again
  static std::map<std::uint16_t, std::weak_ptr<store::TcpServer>> servers;
  const std::lock_guard lock(mutex);
  if (options.port != 0) {
    if (auto running = servers[options.port].lock(); running && running->owned_by_this_process()) return running;
  }
  auto server = new_server(options);
  servers[server->port()] = server;
  return server;
}

/// True if torchrun's agent serves a store on this port, so that the master is a client.
bool agent_serves(std::uint16_t port) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string_view(value ? value : "");
  };
  const std::string_view used = variable("TORCHELASTIC_USE_AGENT_STORE");
  return (used == "True" || used == "1") && variable("MASTER_PORT") == std::to_string(port);
}

/// Returns the server of a master; null if torchrun's agent serves.
std::shared_ptr<store::TcpServer> server_of(const TCPStoreOptions& options) {
  if (options.multi_tenant) return shared_tenant_server(options);
  try {
    return new_server(options);
  } catch (const ResourceError&) {
    if (!agent_serves(options.port)) throw;
    return nullptr;
  }
}

}  // namespace

TCPStore::TCPStore(const TCPStoreOptions& options) : Store(options.timeout) {
  if (options.host.empty())
    throw InvalidArgument("TCPStore: host must not be empty. Pass the host that serves the store.");
  if (options.world_size == 0) {
    throw InvalidArgument("TCPStore world size cannot be 0. Omit it if the number of processes is unknown.");
  }
  if (options.world_size) {
    store::check_world_size_range(fmt::format("TCPStore({})", store::endpoint_name(options.host, options.port)),
                                  "world_size", *options.world_size);
  }
  if (!options.is_master && options.port == 0) {
    throw InvalidArgument(fmt::format(
        "TCPStore({}): port 0 is valid for the master only. Pass the value of port() of the master's store.",
        options.host));
  }
  std::string token = store::token_or_environment(options.token);
  std::shared_ptr<store::TcpServer> server;
  if (options.is_master) server = server_of(options);
  // The agent's server is PyTorch's, which does not support tokens.
  if (options.is_master && !server && !options.token) token.clear();
  impl_ = std::make_unique<Impl>(options.host, server ? server->port() : options.port, options.timeout, server,
                                 store::ClientOptions{token, options.limits.keepalive});
  if (!options.wait_for_workers || !options.world_size) return;
  {
    TcpCall call(impl_->connection, *this, "add", store::kWorkersKey, options.timeout);
    call.send(RequestBuilder(Query::add).text(store::kWorkersKey).number<std::int64_t>(1));
    call.read_number<std::int64_t>();
  }
  if (!server) return;
  const std::int64_t joined = server->await_workers(*options.world_size, deadline_after(options.timeout));
  if (joined < *options.world_size) {
    throw store::StoreTimeout(fmt::format(
        "{}: Timed out after {} seconds waiting for clients. {}/{} clients joined. Check that the other processes "
        "are running and can reach this address.",
        describe(), std::chrono::ceil<std::chrono::seconds>(options.timeout).count(), joined, *options.world_size));
  }
}

TCPStore::TCPStore(std::unique_ptr<Impl> impl, Milliseconds timeout) : Store(timeout), impl_(std::move(impl)) {}

TCPStore::~TCPStore() = default;

std::string TCPStore::host() const { return impl_->host; }
std::uint16_t TCPStore::port() const { return impl_->port; }
std::string TCPStore::describe() const {
  return fmt::format("TCPStore({})", store::endpoint_name(impl_->host, impl_->port));
}

std::shared_ptr<Store> TCPStore::clone() const {
  auto impl = std::make_unique<Impl>(impl_->host, impl_->port, timeout(), impl_->server, impl_->options);
  return std::shared_ptr<TCPStore>(new TCPStore(std::move(impl), timeout()));
}

void TCPStore::ping() {
  TcpCall call(impl_->connection, *this, "ping", "", timeout());
  constexpr std::uint32_t kNonce = 0x70696e67;
  call.send(RequestBuilder(Query::ping).number(kNonce));
  if (call.read_number<std::uint32_t>() != kNonce)
    call.client().throw_connection_lost("it replied to a ping with a wrong number");
}

void TCPStore::set(const std::string& key, const std::string& value) {
  impl_->send_key_value(*this, "set", Query::set, key, value);
}

// The server replies to get for a missing key with an empty value, so a non-empty value takes one round trip. For an
// empty one, the client waits for the key and repeats the request.
std::string TCPStore::get(const std::string& key) {
  TcpCall call(impl_->connection, *this, "get", key, timeout());
  call.send(RequestBuilder(Query::get).key(key));
  std::string value = call.read_text();
  if (!value.empty()) return value;
  call.wait_for({key});
  call.send(RequestBuilder(Query::get).key(key));
  return call.read_text();
}

std::int64_t TCPStore::add(const std::string& key, std::int64_t amount) {
  TcpCall call(impl_->connection, *this, "add", key, timeout());
  try {
    call.send(RequestBuilder(Query::add).key(key).number(amount));
    return call.read_number<std::int64_t>();
  } catch (const PeerLost&) {
    // A server that cannot add closes the connection. A new connection shows whether that was the reason: then the
    // value is not a number, or the sum overflows.
    if (!call.reconnect(impl_->host, impl_->port, kReconnectTimeout, impl_->options)) throw;
    call.send(RequestBuilder(Query::get).key(key));
    store::counter_sum(key, call.read_text(), amount);
    call.client().throw_connection_lost(
        "the server closed it without a reply; the addition may or may not have happened");
  }
}

void TCPStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  TcpCall call(impl_->connection, *this, "wait", keys, timeout);
  call.wait_for(keys);
}

bool TCPStore::check(const std::vector<std::string>& keys) {
  TcpCall call(impl_->connection, *this, "check", keys, timeout());
  call.send(RequestBuilder(Query::check).keys(keys));
  return call.read_number<store::CheckReply>() == store::CheckReply::ready;
}

std::string TCPStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  store::require_value(*this, key, expected);
  store::require_value(*this, key, desired);
  TcpCall call(impl_->connection, *this, "compare_set", key, timeout());
  call.send(RequestBuilder(Query::compare_set).key(key).text(expected).text(desired));
  return call.read_text();
}

bool TCPStore::delete_key(const std::string& key) {
  TcpCall call(impl_->connection, *this, "delete_key", key, timeout());
  call.send(RequestBuilder(Query::delete_key).key(key));
  return call.read_number<std::int64_t>() > 0;
}

std::int64_t TCPStore::num_keys() {
  TcpCall call(impl_->connection, *this, "num_keys", "", timeout());
  call.send(RequestBuilder(Query::num_keys));
  return call.read_number<std::int64_t>();
}

std::vector<std::string> TCPStore::list_keys() {
  TcpCall call(impl_->connection, *this, "list_keys", "", timeout());
  call.send(RequestBuilder(Query::list_keys));
  const auto count = call.read_number<std::int64_t>();
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < count; ++i) {
    std::string key = call.read_text();
    if (key.starts_with(store::kKeyPrefix)) keys.push_back(key.substr(store::kKeyPrefix.size()));
  }
  return keys;
}

void TCPStore::append(const std::string& key, const std::string& value) {
  impl_->send_key_value(*this, "append", Query::append, key, value);
}

std::vector<std::string> TCPStore::multi_get(const std::vector<std::string>& keys) {
  if (keys.empty()) return {};
  TcpCall call(impl_->connection, *this, "multi_get", keys, timeout());
  const auto request_values = [&] {
    call.send(RequestBuilder(Query::multi_get).keys(keys));
    std::vector<std::string> values(keys.size());
    for (std::string& value : values) value = call.read_text();
    return values;
  };
  std::vector<std::string> values = request_values();
  if (std::none_of(values.begin(), values.end(), [](const std::string& value) { return value.empty(); })) return values;
  call.wait_for(keys);
  return request_values();
}

void TCPStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  store::check_one_value_per_key(*this, keys, values);
  for (std::size_t i = 0; i < keys.size(); ++i) store::require_value(*this, keys[i], values[i]);
  TcpCall call(impl_->connection, *this, "multi_set", keys, timeout());
  RequestBuilder request(Query::multi_set);
  request.number<std::uint64_t>(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) request.key(keys[i]).text(values[i]);
  call.send(request);
}

void TCPStore::queue_push(const std::string& key, const std::string& value) {
  impl_->send_key_value(*this, "queue_push", Query::queue_push, key, value);
}

std::string TCPStore::queue_pop(const std::string& key, bool block) {
  TcpCall call(impl_->connection, *this, "queue_pop", key, timeout());
  Milliseconds pause(0);
  while (true) {
    call.send(RequestBuilder(Query::queue_pop).key(key));
    if (call.read_number<std::int64_t>() > 0) return call.read_text();
    if (!block) store::throw_queue_empty(*this, key);
    // The wait returns immediately if the key also has a value, or if another client pops first. The protocol cannot
    // wait for a queue alone, so retries back off.
    if (pause > Milliseconds(0)) call.pause(pause);
    if (Clock::now() >= call.deadline()) call.throw_timed_out(key);
    call.send(RequestBuilder(Query::wait).keys({key}));
    const bool woken = call.wait_until_woken(std::min(call.deadline(), deadline_after(kPopRetryInterval)));
    pause = woken ? std::min(2 * pause + Milliseconds(1), kInterruptPeriod) : Milliseconds(0);
  }
}

std::int64_t TCPStore::queue_len(const std::string& key) {
  TcpCall call(impl_->connection, *this, "queue_len", key, timeout());
  call.send(RequestBuilder(Query::queue_len).key(key));
  return call.read_number<std::int64_t>();
}

void TCPStore::barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout) {
  store::check_world_size(*this, key, world_size);
  TcpCall call(impl_->connection, *this, "barrier", key, timeout);
  call.send(RequestBuilder(Query::barrier).key(key).number(world_size));
  if (!call.wait_until_woken(call.deadline())) store::throw_barrier_timeout(*this, key, timeout);
}

}  // namespace hookline
