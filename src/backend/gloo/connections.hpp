// A connection of Gloo's to every peer: what is sent over one comes in its order, and waits for what is before it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <hookline/core/deadline.hpp>

namespace hookline::gloo_engine {

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

// A wait of Gloo's that runs out of time closes all connections of a context: none is to.
inline constexpr Milliseconds kForever = kLongestTimeout;

class Connections {
 public:
  /// Makes the sockets. ResourceError where there are none left. The timeout is that of connecting.
  Connections(::gloo::transport::Device& device, int rank, int size, Milliseconds timeout);

  /// Where a peer finds this rank, as Gloo writes it.
  std::vector<char> address_for(int peer);
  /// Throws what Gloo does.
  void connect(int peer, const std::vector<char>& address) { context_->getPair(peer)->connect(address); }
  /// To be called once, when all are connected.
  void begin();

  Buffer buffer(void* data, std::size_t bytes) { return context_->createUnboundBuffer(data, bytes); }
  /// Why a connection is lost; empty where it is not.
  std::string why_lost(int peer);
  /// Ends all of them: what waits throws.
  void close() noexcept;

 private:
  const int rank_;
  const int size_;
  const std::shared_ptr<::gloo::transport::Context> context_;
  std::byte pulse_{};
  std::mutex pulse_mutex_;
  std::vector<Buffer> pulses_;  ///< by peer
};

}  // namespace hookline::gloo_engine
