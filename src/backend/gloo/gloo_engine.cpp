// The gloo transport: requests are Gloo's unbound buffers; channel and sequence form Gloo's slot.
#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>

#include <fmt/format.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include <hookline/backend/engine.hpp>
#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/bootstrap.hpp"
#include "backend/gloo/connections.hpp"
#include "backend/gloo/local_address.hpp"
#include "backend/gloo/meeting.hpp"
#include "backend/gloo/no_sigpipe.hpp"
#include "backend/meeting.hpp"

namespace hookline::gloo_engine {
namespace {

std::uint64_t slot_of(MessageAddress address) {
  return static_cast<std::uint64_t>(address.channel) << 56 | (address.number & ((std::uint64_t{1} << 56) - 1));
}

PeerLost lost(int peer, const std::string& where, const std::exception& why) {
  return {fmt::format("{}: {}", where, why.what()), peer < 0 ? std::vector<int>() : std::vector{peer}};
}

class GlooMessage final : public Message {
 public:
  GlooMessage(Buffer buffer, bool is_send, int peer, std::string where)
      : buffer_(std::move(buffer)), is_send_(is_send), peer_(peer), where_(std::move(where)) {}

  bool wait(bool) override {
    if (through_) return true;
    try {
      through_ = is_send_ ? buffer_->waitSend(&source_, kForever) : buffer_->waitRecv(&source_, kForever);
    } catch (const std::exception& e) {
      throw lost(peer_, where_, e);
    }
    return through_;
  }
  void nudge() noexcept override { is_send_ ? buffer_->abortWaitSend() : buffer_->abortWaitRecv(); }
  int source() const noexcept override { return source_; }

 private:
  const Buffer buffer_;
  const bool is_send_;
  const int peer_;  ///< -1: any rank
  const std::string where_;
  int source_ = -1;
  bool through_ = false;
};

struct TwoAddresses {
  std::vector<char> data;
  std::vector<char> mail;
};

// All encoded addresses have the same length.
std::vector<char> joined(TwoAddresses addresses) {
  addresses.data.insert(addresses.data.end(), addresses.mail.begin(), addresses.mail.end());
  return std::move(addresses.data);
}

TwoAddresses parted(const std::vector<char>& joined) {
  const auto middle = joined.begin() + static_cast<std::ptrdiff_t>(joined.size() / 2);
  return {.data = {joined.begin(), middle}, .mail = {middle, joined.end()}};
}

/// A Transport over Gloo. Control messages have connections of their own: if a rank aborts during a transfer, Gloo
/// never gets past the abandoned data, so the abort message must not queue behind it.
class GlooEngine final : public Engine {
 public:
  GlooEngine(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<Store> store, int rank, int size,
             Milliseconds timeout)
      : rank_(rank),
        size_(size),
        store_(std::move(store)),
        device_(std::move(device)),
        data_(*device_, rank, size, timeout),
        mail_(*device_, rank, size, timeout) {
    connect(deadline_after(timeout));
    for (Connections* const connections : {&data_, &mail_}) connections->begin();
  }
  GlooEngine(const GlooEngine&) = delete;
  GlooEngine& operator=(const GlooEngine&) = delete;
  ~GlooEngine() override = default;

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Message> send(int to, MessageAddress address, const std::byte* data, std::size_t bytes) override {
    return post(to, [&] {
      Buffer posted = over(address).buffer(const_cast<std::byte*>(data), bytes);
      posted->send(to, slot_of(address));
      return std::make_unique<GlooMessage>(std::move(posted), true, to, where(to));
    });
  }
  std::unique_ptr<Message> receive(int from, MessageAddress address, std::byte* data, std::size_t room) override {
    return post(from, [&] {
      Buffer posted = over(address).buffer(data, room);
      posted->recv(from, slot_of(address));
      return std::make_unique<GlooMessage>(std::move(posted), false, from, where(from));
    });
  }

  // Gloo throws if any listed source is disconnected, so only connected sources are listed.
  std::unique_ptr<Message> receive_any(MessageAddress address, std::byte* data, std::size_t room) override {
    for (;;) {
      std::vector<int> sources;
      for (int r = 0; r < size_; ++r) {
        if (r != rank_ && over(address).why_lost(r).empty()) sources.push_back(r);
      }
      try {
        return post(-1, [&] {
          Buffer posted = over(address).buffer(data, room);
          posted->recv(sources, slot_of(address));
          return std::make_unique<GlooMessage>(std::move(posted), false, -1, "any rank");
        });
      } catch (const PeerLost&) {
        const auto is_lost = [&](int r) { return !over(address).why_lost(r).empty(); };
        if (std::none_of(sources.begin(), sources.end(), is_lost)) throw;
      }
    }
  }

  void check(int rank) override {
    for (Connections* const connections : {&data_, &mail_}) {
      const std::string why = connections->why_lost(rank);
      if (!why.empty()) throw PeerLost(fmt::format("{}: {}", where(rank), why), {rank});
    }
  }
  void left(int) noexcept override {}

  void close() noexcept override {
    data_.close();
    mail_.close();
  }

  std::shared_ptr<Engine> subset(const std::vector<int>& ranks, const std::string& name,
                                 Milliseconds timeout) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_shared<GlooEngine>(device_, std::make_shared<PrefixStore>(name, store_), static_cast<int>(own),
                                        static_cast<int>(ranks.size()), timeout);
  }

 private:
  Connections& over(MessageAddress address) { return address.channel == kMailChannel ? mail_ : data_; }

  template <class F>
  std::unique_ptr<Message> post(int peer, F&& f) {
    const NoSigpipe guard;
    try {
      return f();
    } catch (const std::exception& e) {
      throw lost(peer, peer < 0 ? "any rank" : where(peer), e);
    }
  }

  const std::string& where(int rank) const { return where_[static_cast<std::size_t>(rank)]; }

  void connect(Clock::time_point deadline) {
    Addresses own(static_cast<std::size_t>(size_));
    {
      const NoSigpipe guard;
      for (int r = 0; r < size_; ++r) {
        if (r != rank_) own[static_cast<std::size_t>(r)] = joined({data_.address_for(r), mail_.address_for(r)});
      }
    }
    const Addresses theirs = exchange_addresses(*store_, rank_, size_, own, deadline);
    for (int r = 0; r < size_; ++r) where_.push_back(fmt::format("rank {}", r));
    constexpr Milliseconds kClosingPeriod{10};
    // connect() blocks until Gloo's timeout; this thread meanwhile checks for dead ranks.
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    const std::vector<int> globals = backend::global_ranks(ranks);  // thread-local: not known to the other thread
    std::future<void> connected = std::async(std::launch::async, [&] { connect_all(theirs, globals, deadline); });
    try {
      while (connected.wait_for(kInterruptPeriod) != std::future_status::ready) backend::check_bootstrap();
    } catch (...) {
      given_up_ = true;
      // close() cancels only waits that have begun, so it repeats until the connecting thread ends.
      do close();
      while (connected.wait_for(kClosingPeriod) != std::future_status::ready);
      throw;
    }
    connected.get();
  }

  void connect_all(const Addresses& theirs, const std::vector<int>& globals, Clock::time_point deadline) {
    const NoSigpipe guard;
    for (int r = 0; r < size_ && !given_up_; ++r) {
      if (r == rank_) continue;
      const TwoAddresses found = parted(theirs[static_cast<std::size_t>(r)]);
      std::string& where = where_[static_cast<std::size_t>(r)];
      try {
        where = fmt::format("rank {} at {}", r, ::gloo::transport::tcp::Address(found.data).str());
        data_.connect(r, found.data);
        mail_.connect(r, found.mail);
      } catch (const std::exception& e) {
        const int peer = globals[static_cast<std::size_t>(r)];
        const std::string text =
            fmt::format("gloo: rank {} cannot connect to rank {}{} ({}): {}", globals[static_cast<std::size_t>(rank_)],
                        peer, where.substr(std::min(where.find(" at "), where.size())), device_->str(), e.what());
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
  Connections mail_;
  std::vector<std::string> where_;  ///< by rank, for error messages
  std::atomic<bool> given_up_ = false;
};

// Returns the address that this rank listens on. A loopback default is replaced if another rank is on another host.
std::string agreed_address(const EngineSetting& setting, Clock::time_point deadline) {
  const std::string own = local_address(setting.options, setting.reach);
  PrefixStore place("address", setting.store);
  const auto all = backend::meet(place, "gloo", setting.rank, setting.size, own, deadline);
  return is_named(setting.options) ? own : reachable_address(own, all);
}

std::shared_ptr<Engine> make(const EngineSetting& setting) {
  const Clock::time_point deadline = deadline_after(setting.timeout);
  ::gloo::transport::tcp::attr attributes;
  attributes.hostname = agreed_address(setting, deadline);
  std::shared_ptr<::gloo::transport::Device> device;
  try {
    const NoSigpipe guard;  // the device's thread inherits the signal mask
    device = ::gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& e) {
    throw ResourceError(fmt::format(
        "gloo: cannot listen on {}: {}. Check that this host has the address, and a free port "
        "(net.ipv4.ip_local_port_range).",
        attributes.hostname, e.what()));
  }
  return std::make_shared<GlooEngine>(device, setting.store, setting.rank, setting.size, time_left(deadline));
}

}  // namespace
}  // namespace hookline::gloo_engine

HOOKLINE_ENGINE(hookline::gloo_engine::make)
