// The gloo transport: requests are Gloo's unbound buffers; channel and sequence form Gloo's slot.
#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>

#include <fmt/format.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include <hookline/backend/transport.hpp>
#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/bootstrap.hpp"
#include "backend/gloo/address_exchange.hpp"
#include "backend/gloo/connections.hpp"
#include "backend/gloo/local_address.hpp"
#include "backend/gloo/no_sigpipe.hpp"
#include "backend/store_allgather.hpp"

namespace hookline::gloo_transport {
namespace {

std::uint64_t slot_of(MessageTag tag) {
  return static_cast<std::uint64_t>(tag.channel) << 56 | (tag.sequence & ((std::uint64_t{1} << 56) - 1));
}

PeerLost peer_lost(int peer, const std::string& peer_name, const std::exception& error) {
  return {fmt::format("{}: {}", peer_name, error.what()), peer < 0 ? std::vector<int>() : std::vector{peer}};
}

class GlooRequest final : public Request {
 public:
  GlooRequest(Buffer buffer, bool is_send, int peer, std::string peer_name)
      : buffer_(std::move(buffer)), is_send_(is_send), peer_(peer), peer_name_(std::move(peer_name)) {}

  bool wait(WaitPolicy) override {
    if (completed_) return true;
    try {
      completed_ = is_send_ ? buffer_->waitSend(&source_, kForever) : buffer_->waitRecv(&source_, kForever);
    } catch (const std::exception& e) {
      throw peer_lost(peer_, peer_name_, e);
    }
    return completed_;
  }
  void interrupt() noexcept override { is_send_ ? buffer_->abortWaitSend() : buffer_->abortWaitRecv(); }
  int source() const noexcept override { return source_; }

 private:
  const Buffer buffer_;
  const bool is_send_;
  const int peer_;  ///< -1: any rank
  const std::string peer_name_;
  int source_ = -1;
  bool completed_ = false;
};

struct PeerAddresses {
  std::vector<char> data;
  std::vector<char> control;
};

// All encoded addresses have the same length.
std::vector<char> concat(PeerAddresses addresses) {
  addresses.data.insert(addresses.data.end(), addresses.control.begin(), addresses.control.end());
  return std::move(addresses.data);
}

PeerAddresses split(const std::vector<char>& bytes) {
  const auto middle = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
  return {.data = {bytes.begin(), middle}, .control = {middle, bytes.end()}};
}

/// A Transport over Gloo. Control messages have connections of their own: if a rank aborts during a transfer, Gloo
/// never gets past the abandoned data, so the abort message must not queue behind it.
class GlooTransport final : public Transport {
 public:
  GlooTransport(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<Store> store, int rank, int size,
                Milliseconds timeout)
      : rank_(rank),
        size_(size),
        store_(std::move(store)),
        device_(std::move(device)),
        data_(*device_, rank, size, timeout),
        control_(*device_, rank, size, timeout) {
    connect(deadline_after(timeout));
    for (Connections* const connections : {&data_, &control_}) connections->start_probes();
  }
  GlooTransport(const GlooTransport&) = delete;
  GlooTransport& operator=(const GlooTransport&) = delete;
  ~GlooTransport() override = default;

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Request> send(int destination, MessageTag tag, const std::byte* data, std::size_t bytes) override {
    return post(destination, [&] {
      Buffer posted = connections_for(tag).buffer(const_cast<std::byte*>(data), bytes);
      posted->send(destination, slot_of(tag));
      return std::make_unique<GlooRequest>(std::move(posted), true, destination, peer_name(destination));
    });
  }
  std::unique_ptr<Request> receive(int source, MessageTag tag, std::byte* data, std::size_t capacity) override {
    return post(source, [&] {
      Buffer posted = connections_for(tag).buffer(data, capacity);
      posted->recv(source, slot_of(tag));
      return std::make_unique<GlooRequest>(std::move(posted), false, source, peer_name(source));
    });
  }

  // Gloo throws if any listed source is disconnected, so only connected sources are listed.
  std::unique_ptr<Request> receive_any(MessageTag tag, std::byte* data, std::size_t capacity) override {
    for (;;) {
      std::vector<int> sources;
      for (int r = 0; r < size_; ++r) {
        if (r != rank_ && connections_for(tag).disconnect_reason(r).empty()) sources.push_back(r);
      }
      try {
        return post(-1, [&] {
          Buffer posted = connections_for(tag).buffer(data, capacity);
          posted->recv(sources, slot_of(tag));
          return std::make_unique<GlooRequest>(std::move(posted), false, -1, "any rank");
        });
      } catch (const PeerLost&) {
        const auto is_disconnected = [&](int r) { return !connections_for(tag).disconnect_reason(r).empty(); };
        if (std::none_of(sources.begin(), sources.end(), is_disconnected)) throw;
      }
    }
  }

  void throw_if_disconnected(int rank) override {
    for (Connections* const connections : {&data_, &control_}) {
      const std::string reason = connections->disconnect_reason(rank);
      if (!reason.empty()) throw PeerLost(fmt::format("{}: {}", peer_name(rank), reason), {rank});
    }
  }
  void on_peer_departed(int) noexcept override {}

  void close() noexcept override {
    data_.close();
    control_.close();
  }

  std::shared_ptr<Transport> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                          Milliseconds timeout) override {
    const auto own_rank = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_shared<GlooTransport>(device_, std::make_shared<PrefixStore>(name, store_),
                                           static_cast<int>(own_rank), static_cast<int>(ranks.size()), timeout);
  }

 private:
  Connections& connections_for(MessageTag tag) { return tag.channel == kControlChannel ? control_ : data_; }

  template <class F>
  std::unique_ptr<Request> post(int peer, F&& f) {
    const SigpipeBlocker guard;
    try {
      return f();
    } catch (const std::exception& e) {
      throw peer_lost(peer, peer < 0 ? "any rank" : peer_name(peer), e);
    }
  }

  const std::string& peer_name(int rank) const { return peer_names_[static_cast<std::size_t>(rank)]; }

  void connect(Clock::time_point deadline) {
    Addresses own(static_cast<std::size_t>(size_));
    {
      const SigpipeBlocker guard;
      for (int r = 0; r < size_; ++r) {
        if (r != rank_) own[static_cast<std::size_t>(r)] = concat({data_.address_for(r), control_.address_for(r)});
      }
    }
    const Addresses peer_addresses = exchange_addresses(*store_, rank_, size_, own, deadline);
    for (int r = 0; r < size_; ++r) peer_names_.push_back(fmt::format("rank {}", r));
    constexpr Milliseconds kCloseRetryInterval{10};
    // Connects on another thread, because Gloo blocks until its timeout. This thread meanwhile checks for dead ranks.
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::vector<int> global_ranks = backend::global_ranks(ranks);  // reads thread-local state
    std::future<void> connected =
        std::async(std::launch::async, [&] { connect_all(peer_addresses, global_ranks, deadline); });
    try {
      while (connected.wait_for(kInterruptPeriod) != std::future_status::ready) backend::check_bootstrap();
    } catch (...) {
      connect_cancelled_ = true;
      // close() cancels only waits that have begun, so it repeats until the connecting thread ends.
      do close();
      while (connected.wait_for(kCloseRetryInterval) != std::future_status::ready);
      throw;
    }
    connected.get();
  }

  void connect_all(const Addresses& peer_addresses, const std::vector<int>& global_ranks, Clock::time_point deadline) {
    const SigpipeBlocker guard;
    for (int r = 0; r < size_ && !connect_cancelled_; ++r) {
      if (r == rank_) continue;
      const PeerAddresses addresses = split(peer_addresses[static_cast<std::size_t>(r)]);
      std::string& name = peer_names_[static_cast<std::size_t>(r)];
      try {
        name = fmt::format("rank {} at {}", r, ::gloo::transport::tcp::Address(addresses.data).str());
        data_.connect(r, addresses.data);
        control_.connect(r, addresses.control);
      } catch (const std::exception& e) {
        const int peer = global_ranks[static_cast<std::size_t>(r)];
        const std::string text = fmt::format(
            "gloo: rank {} cannot connect to rank {}{} ({}): {}. Check that rank {} is running and that its "
            "address can be reached from this host (option \"interface\", firewall).",
            global_ranks[static_cast<std::size_t>(rank_)], peer, name.substr(std::min(name.find(" at "), name.size())),
            device_->str(), e.what(), peer);
        if (Clock::now() >= deadline) throw Timeout(text, {peer});
        throw PeerLost(text, {peer});
      }
    }
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<::gloo::transport::Device> device_;
  Connections data_;
  Connections control_;
  std::vector<std::string> peer_names_;  ///< by rank, for error messages
  std::atomic<bool> connect_cancelled_ = false;
};

// Returns the address that this rank listens on. A loopback default is replaced if another rank is on another host.
std::string agree_on_address(const TransportConfig& config, Clock::time_point deadline) {
  const std::string own = local_address(config.options, config.route_hint);
  PrefixStore store("address", config.store);
  const auto all = backend::store_allgather(store, "gloo", config.rank, config.size, own, deadline);
  return has_explicit_address(config.options) ? own : reachable_address(own, all);
}

std::shared_ptr<Transport> make_gloo_transport(const TransportConfig& config) {
  const Clock::time_point deadline = deadline_after(config.timeout);
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = agree_on_address(config, deadline);
  std::shared_ptr<::gloo::transport::Device> device;
  try {
    const SigpipeBlocker guard;  // the device's thread inherits the signal mask
    device = ::gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& e) {
    throw ResourceError(
        fmt::format("gloo: cannot listen on {}: {}. Check that this host has the address, and a free port "
                    "(net.ipv4.ip_local_port_range).",
                    attributes.hostname, e.what()));
  }
  return std::make_shared<GlooTransport>(device, config.store, config.rank, config.size, time_left(deadline));
}

}  // namespace
}  // namespace hookline::gloo_transport

HOOKLINE_REGISTER_TRANSPORT(hookline::gloo_transport::make_gloo_transport)
