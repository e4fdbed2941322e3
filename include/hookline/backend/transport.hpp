// The Transport interface: point-to-point messages between ranks, the basis of collectives between hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/backend/wait_policy.hpp>
#include <hookline/core/export.hpp>
#include <hookline/store/store.hpp>

namespace hookline {

/// A posted send or receive. The destructor cancels an incomplete request. It returns when the transport no longer
/// accesses the buffer.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  virtual ~Request() = default;

  /// Blocks until the transfer completes (returns true) or interrupt() is called (returns false, even if the transfer
  /// has completed; the caller may wait again). Throws PeerLost if the transfer cannot complete. One thread at a time.
  /// With WaitPolicy::block, a transport that polls may sleep up to 1 ms between polls.
  virtual bool wait(WaitPolicy policy) = 0;
  /// Interrupts the current wait(), or the next one if none is active. Callable from any thread.
  virtual void interrupt() noexcept = 0;
  /// Returns the rank that sent the message. Call after completion.
  virtual int source() const noexcept = 0;
};

/// Matches sends with receives: a receive gets the message with the same channel and sequence. A transport may compare
/// only the low 15 bits of the sequence if it delivers messages with equal bits in the order in which they were sent:
/// both ends post them in the same order. Messages of kControlChannel all have sequence 0.
struct MessageTag {
  int channel = 0;
  std::uint64_t sequence = 0;
};

inline constexpr int kControlChannel = 0;
inline constexpr std::size_t kMaxControlBytes = 8 * 1024;  ///< maximum size of a message of kControlChannel

/// One rank's endpoint of a group. Thread-safe. Only Request::wait() and new_subgroup() block. The caller guarantees a
/// message size of at least 1 byte and at most the receiver's capacity, and a buffer that outlives the request.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// A send completes when its buffer may be reused. The three functions below throw only PeerLost.
  [[nodiscard]] virtual std::unique_ptr<Request> send(int destination, MessageTag tag, const std::byte* data,
                                                      std::size_t bytes) = 0;
  [[nodiscard]] virtual std::unique_ptr<Request> receive(int source, MessageTag tag, std::byte* data,
                                                         std::size_t capacity) = 0;
  /// Receives from any rank. Used for kControlChannel only, one request at a time.
  [[nodiscard]] virtual std::unique_ptr<Request> receive_any(MessageTag tag, std::byte* data, std::size_t capacity) = 0;

  /// Throws PeerLost if the connection to a rank is known to be lost. Called about ten times per second while an
  /// operation waits for the rank, for transports whose requests do not always detect a loss.
  virtual void throw_if_disconnected(int rank) = 0;
  /// Called when a rank announced that it leaves and sends nothing more. A transport without closable connections must
  /// fail the incomplete receives from that rank.
  virtual void on_peer_departed(int rank) noexcept = 0;
  /// Closes all connections. Incomplete requests throw PeerLost in wait(); peers treat this rank as dead. Idempotent;
  /// callable while other threads wait.
  virtual void close() noexcept = 0;

  /// Creates a transport over `ranks`, like Backend::new_subgroup. Blocks until all of them have called it.
  virtual std::shared_ptr<Transport> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                                  Milliseconds timeout) = 0;
};

/// Creates a backend that implements collectives, lanes, timeouts and errors over a connected transport.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_transport_backend(std::shared_ptr<Transport> transport);

/// Arguments for creating a backend or a transport.
struct TransportConfig {
  std::shared_ptr<Store> store = {};  ///< rendezvous store, used by this group only
  int rank = 0;
  int size = 1;
  Milliseconds timeout = kDefaultTimeout;           ///< time limit for all ranks to join
  std::map<std::string, std::string> options = {};  ///< by name; unknown options are rejected
  /// Name or address of the host that serves the store, if any. The transport uses the network interface that routes to
  /// it, because all ranks reach that host.
  std::string route_hint = {};
};

/// Incremented when this header changes. Loading a transport library of another version fails.
inline constexpr int kTransportAbiVersion = 1;

}  // namespace hookline

/// Registers the transport of a library libhookline_NAME.so. Place it once, outside all namespaces. `make` is a
/// function from const TransportConfig& to std::shared_ptr<Transport>; its exceptions reach the user.
#define HOOKLINE_REGISTER_TRANSPORT(make)                                                                      \
  extern "C" HOOKLINE_EXPORT int hookline_transport_abi_version() { return ::hookline::kTransportAbiVersion; } \
  extern "C" HOOKLINE_EXPORT void hookline_make_transport(const ::hookline::TransportConfig* config,           \
                                                          std::shared_ptr<::hookline::Transport>* transport) { \
    *transport = make(*config);                                                                                \
  }
