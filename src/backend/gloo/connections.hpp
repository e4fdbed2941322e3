// A Gloo connection to every peer. Each connection is ordered: a message waits for the messages sent before it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <hookline/core/deadline.hpp>

namespace hookline::gloo_transport {

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

// Gloo closes all connections of a context when a wait times out, so waits never time out.
inline constexpr Milliseconds kForever = kMaxTimeout;

/// The connections of one Gloo context, one to each peer. Thread-safe after start_probes().
class Connections {
 public:
  /// Opens the sockets. `timeout` limits connect(). Throws ResourceError if the process runs out of descriptors.
  Connections(::gloo::transport::Device& device, int rank, int size, Milliseconds timeout);

  /// Returns the address at which `peer` reaches this rank, in Gloo's encoding.
  std::vector<char> address_for(int peer);
  /// Blocks until the peer is connected. Throws Gloo's exceptions.
  void connect(int peer, const std::vector<char>& address) { context_->getPair(peer)->connect(address); }
  /// Posts the probe receives. Call once, after connecting to all peers.
  void start_probes();

  Buffer buffer(void* data, std::size_t bytes) { return context_->createUnboundBuffer(data, bytes); }
  /// Returns why the connection to `peer` is lost, or an empty string if it is alive. Does not block.
  std::string disconnect_reason(int peer);
  /// Closes all connections; pending waits throw.
  void close() noexcept;

 private:
  const int rank_;
  const int size_;
  const std::shared_ptr<::gloo::transport::Context> context_;
  std::byte probe_{};
  std::mutex probe_mutex_;
  std::vector<Buffer> probes_;  ///< by peer
};

}  // namespace hookline::gloo_transport
