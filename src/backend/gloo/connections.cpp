// Connects to all peers, probes the connections, and closes them.
#include "backend/gloo/connections.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/bootstrap.hpp"

namespace hookline::gloo_transport {
namespace {

constexpr int kConnectionsPerPeer = 2;  // GlooTransport::data_ and control_
constexpr std::uint64_t kProbeSlot = std::uint64_t{0xff} << 56;

}  // namespace

Connections::Connections(::gloo::transport::Device& device, int rank, int size, Milliseconds timeout)
    : rank_(rank), size_(size), context_(device.createContext(rank, size)) {
  // Gloo waits five times as long as this for a connection.
  context_->setTimeout(std::max(Milliseconds(1), timeout / 5));
  try {
    for (int r = 0; r < size; ++r) {
      if (r != rank) context_->createPair(r);
    }
  } catch (const std::exception& e) {
    // Gloo opens a separate listening port for each pair, so large groups may run out of ports.
    throw ResourceError(
        fmt::format("gloo: cannot open sockets for {} ranks on {}: {}. Each rank of a host needs {} ports (widen "
                    "net.ipv4.ip_local_port_range) and as many file descriptors (raise ulimit -n).",
                    size, device.str(), e.what(), kConnectionsPerPeer * (size - 1)));
  }
}

std::vector<char> Connections::address_for(int peer) { return context_->getPair(peer)->address().bytes(); }

void Connections::start_probes() {
  for (int r = 0; r < size_; ++r) {
    probes_.push_back(r == rank_ ? nullptr : buffer(&probe_, sizeof probe_));
    if (r == rank_) continue;
    try {
      probes_.back()->recv(r, kProbeSlot);
    } catch (const std::exception& e) {
      const int peer = backend::global_rank(r);
      throw PeerLost(fmt::format("gloo: lost the connection to rank {}: {}", peer, e.what()), {peer});
    }
  }
}

// Peers never send to the probe's slot, so the receive ends only when the connection closes. Aborting the wait first
// makes the check non-blocking.
std::string Connections::disconnect_reason(int peer) {
  const std::lock_guard lock(probe_mutex_);
  const Buffer& probe = probes_[static_cast<std::size_t>(peer)];
  probe->abortWaitRecv();
  try {
    probe->waitRecv(nullptr, kForever);
    return {};
  } catch (const std::exception& e) {
    return e.what();
  }
}

// Gloo closes all connections of a context when one wait times out; it has no other way to cancel pending waits.
void Connections::close() noexcept {
  try {
    std::byte unused{};
    buffer(&unused, sizeof unused)->waitRecv(nullptr, Milliseconds(0));
  } catch (const std::exception&) {
    // The wait always times out.
  }
}

}  // namespace hookline::gloo_transport
