// The engine on Gloo: its messages are Gloo's unbound buffers, its channels and numbers Gloo's slots.
#include <algorithm>
#include <mutex>

#include <fmt/format.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <hookline/backend/engine.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/prefix_store.hpp>

#include "backend/gloo/local_address.hpp"
#include "backend/gloo/meeting.hpp"
#include "backend/gloo/no_sigpipe.hpp"
#include "backend/meeting.hpp"

namespace hookline::gloo_engine {
namespace {

using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

// A wait of Gloo's that runs out of time closes all connections of the group: none is to.
constexpr Milliseconds kForever = kLongestTimeout;
constexpr std::uint64_t kPulseSlot = std::uint64_t{0xff} << 56;

std::uint64_t slot_of(MessageAddress address) {
  return static_cast<std::uint64_t>(address.channel) << 56 | (address.number & ((std::uint64_t{1} << 56) - 1));
}

class GlooMessage final : public Message {
 public:
  GlooMessage(Buffer buffer, bool is_send, std::string peer)
      : buffer_(std::move(buffer)), is_send_(is_send), peer_(std::move(peer)) {}

  bool wait(bool) override {
    if (through_) return true;
    try {
      through_ = is_send_ ? buffer_->waitSend(&source_, kForever) : buffer_->waitRecv(&source_, kForever);
    } catch (const std::exception& e) {
      throw PeerLost(fmt::format("{}: {}", peer_, e.what()));
    }
    return through_;
  }
  void nudge() noexcept override { is_send_ ? buffer_->abortWaitSend() : buffer_->abortWaitRecv(); }
  int source() const noexcept override { return source_; }

 private:
  const Buffer buffer_;
  const bool is_send_;
  const std::string peer_;
  int source_ = -1;
  bool through_ = false;
};

class GlooEngine final : public Engine {
 public:
  GlooEngine(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<Store> store, int rank, int size,
             Milliseconds timeout)
      : rank_(rank), size_(size), store_(std::move(store)), device_(std::move(device)) {
    connect(deadline_after(timeout));
    for (int r = 0; r < size_; ++r) {
      pulses_.push_back(r == rank_ ? nullptr : buffer(&pulse_, sizeof pulse_));
      if (r != rank_) pulses_.back()->recv(r, kPulseSlot);
    }
  }
  GlooEngine(const GlooEngine&) = delete;
  GlooEngine& operator=(const GlooEngine&) = delete;
  ~GlooEngine() override = default;

  std::string name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Message> send(int to, MessageAddress address, const std::byte* data, std::size_t bytes) override {
    return post(to, [&] {
      Buffer posted = buffer(const_cast<std::byte*>(data), bytes);
      posted->send(to, slot_of(address));
      return std::make_unique<GlooMessage>(std::move(posted), true, where(to));
    });
  }
  std::unique_ptr<Message> receive(int from, MessageAddress address, std::byte* data, std::size_t room) override {
    return post(from, [&] {
      Buffer posted = buffer(data, room);
      posted->recv(from, slot_of(address));
      return std::make_unique<GlooMessage>(std::move(posted), false, where(from));
    });
  }

  // Gloo throws where one of those that it may come from is lost, so these are left out.
  std::unique_ptr<Message> receive_any(MessageAddress address, std::byte* data, std::size_t room) override {
    for (;;) {
      std::vector<int> sources;
      for (int r = 0; r < size_; ++r) {
        if (r != rank_ && !is_lost(r)) sources.push_back(r);
      }
      try {
        return post(-1, [&] {
          Buffer posted = buffer(data, room);
          posted->recv(sources, slot_of(address));
          return std::make_unique<GlooMessage>(std::move(posted), false, "any rank");
        });
      } catch (const PeerLost&) {
        if (std::none_of(sources.begin(), sources.end(), [&](int r) { return is_lost(r); })) throw;
      }
    }
  }

  // A receive that nothing is ever sent to hears of the end of a connection, and can be asked without waiting.
  void check(int rank) override {
    const std::lock_guard lock(pulse_mutex_);
    const Buffer& pulse = pulses_[static_cast<std::size_t>(rank)];
    pulse->abortWaitRecv();
    try {
      pulse->waitRecv(nullptr, kForever);
    } catch (const std::exception& e) {
      throw PeerLost(fmt::format("{}: {}", where(rank), e.what()));
    }
  }
  void left(int) noexcept override {}

  // Gloo has no way to end all that waits but a wait that runs out of time.
  void close() noexcept override {
    try {
      std::byte unused{};
      buffer(&unused, sizeof unused)->waitRecv(nullptr, Milliseconds(0));
    } catch (const std::exception&) {
      // It always throws.
    }
  }

  std::shared_ptr<Engine> subset(const std::vector<int>& ranks, const std::string& name,
                                 Milliseconds timeout) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_shared<GlooEngine>(device_, std::make_shared<PrefixStore>(name, store_), static_cast<int>(own),
                                        static_cast<int>(ranks.size()), timeout);
  }

 private:
  Buffer buffer(void* data, std::size_t bytes) { return context_->createUnboundBuffer(data, bytes); }

  template <class F>
  std::unique_ptr<Message> post(int peer, F&& f) {
    const NoSigpipe guard;
    try {
      return f();
    } catch (const std::exception& e) {
      throw PeerLost(fmt::format("{}: {}", peer < 0 ? "any rank" : where(peer), e.what()));
    }
  }

  bool is_lost(int rank) {
    try {
      check(rank);
      return false;
    } catch (const PeerLost&) {
      return true;
    }
  }

  const std::string& where(int rank) const { return where_[static_cast<std::size_t>(rank)]; }

  void connect(Clock::time_point deadline) {
    context_ = device_->createContext(rank_, size_);
    // Gloo waits five times as long as this for a connection.
    context_->setTimeout(std::max(Milliseconds(1), time_left(deadline) / 5));
    Addresses own(static_cast<std::size_t>(size_));
    const NoSigpipe guard;
    try {
      for (int r = 0; r < size_; ++r) {
        if (r != rank_) own[static_cast<std::size_t>(r)] = context_->createPair(r)->address().bytes();
      }
    } catch (const std::exception& e) {
      throw ResourceError(fmt::format("gloo: no sockets for {} ranks on {}: {}", size_, device_->str(), e.what()));
    }
    const Addresses theirs = exchange_addresses(*store_, rank_, size_, own, deadline);
    for (int r = 0; r < size_; ++r) {
      where_.push_back(fmt::format("rank {}", r));
      if (r == rank_) continue;
      const auto& bytes = theirs[static_cast<std::size_t>(r)];
      try {
        where_.back() = fmt::format("rank {} at {}", r, ::gloo::transport::tcp::Address(bytes).str());
        context_->getPair(r)->connect(bytes);
      } catch (const std::exception& e) {
        const std::string text =
            fmt::format("gloo: rank {} cannot connect to {} ({}): {}", rank_, where_.back(), device_->str(), e.what());
        if (Clock::now() >= deadline) throw Timeout(text);
        throw ResourceError(text);
      }
    }
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<::gloo::transport::Context> context_;
  std::vector<std::string> where_;  ///< by rank, for messages
  std::byte pulse_{};
  std::mutex pulse_mutex_;
  std::vector<Buffer> pulses_;
};

// What this rank listens on, which may depend on what the others do.
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
    const NoSigpipe guard;  // the device's thread takes it over
    device = ::gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& e) {
    throw ResourceError(fmt::format("gloo cannot use the address {}: {}", attributes.hostname, e.what()));
  }
  return std::make_shared<GlooEngine>(device, setting.store, setting.rank, setting.size, time_left(deadline));
}

}  // namespace
}  // namespace hookline::gloo_engine

HOOKLINE_ENGINE(hookline::gloo_engine::make)
