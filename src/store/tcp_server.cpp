// The server's thread: the event loop, the listening sockets, and the sessions of the clients.
#include "store/tcp_server.hpp"

#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fork.hpp"
#include "store/service.hpp"
#include "store/tcp_listen.hpp"
#include "store/tcp_session.hpp"

namespace hookline::store {

class TcpServer::Loop final : public SessionHost {
 public:
  Loop(std::vector<Listener> listeners, const SessionLimits& limits) : limits_(limits), timer_(context_) {
    for (Listener& listener : listeners) {
      const auto protocol = listener.family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
      acceptors_.emplace_back(context_, protocol, listener.socket.release());
    }
    for (auto& acceptor : acceptors_) accept(acceptor);
    sweep();
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "hl-tcp-store");
      context_.run();
    });
  }

  ~Loop() override {
    context_.stop();
    thread_.join();
  }

  std::int64_t await_workers(std::int64_t workers, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    workers_came_.wait_until(lock, deadline, [&] { return workers_ >= workers; });
    return workers_;
  }

  Service& service() override { return service_; }
  const SessionLimits& limits() const override { return limits_; }
  std::span<char> read_buffer() override { return buffer_; }

  void served() override {
    // A woken client may turn out to be gone while it is told, which wakes nobody else.
    for (const ClientId client : service_.take_woken()) {
      const auto found = sessions_.find(client);
      if (found == sessions_.end()) continue;
      const std::shared_ptr<Session> session = found->second;
      session->stop_waiting();
    }
    if (service_.workers() == workers_) return;  // written by this thread alone
    const std::lock_guard lock(mutex_);
    workers_ = service_.workers();
    workers_came_.notify_all();
  }

  void closed(ClientId client) override {
    service_.forget(client);
    sessions_.erase(client);
  }

 private:
  void accept(asio::ip::tcp::acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](const asio::error_code& error, asio::ip::tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error == asio::error::no_descriptors) return accept_later(acceptor);
      if (!error) {
        const ClientId id = next_id_++;
        const auto session = std::make_shared<Session>(std::move(socket), id, *this);
        sessions_.emplace(id, session);
        session->start();
      }
      accept(acceptor);
    });
  }

  // With no file descriptor left, accepting at once would fail again and again and take the whole thread.
  void accept_later(asio::ip::tcp::acceptor& acceptor) {
    auto pause = std::make_shared<asio::steady_timer>(context_, Milliseconds(100));
    pause->async_wait([this, &acceptor, pause](const asio::error_code& error) {
      if (!error) accept(acceptor);
    });
  }

  // Looks from time to time for requests that do not come to an end.
  void sweep() {
    timer_.expires_after(std::clamp<Milliseconds>(limits_.grace / 4, Milliseconds(10), std::chrono::seconds(1)));
    timer_.async_wait([this](const asio::error_code& error) {
      if (error) return;
      std::vector<std::shared_ptr<Session>> late;
      const Clock::time_point now = Clock::now();
      for (const auto& [id, session] : sessions_) {
        if (session->overdue(now)) late.push_back(session);
      }
      for (const auto& session : late) session->close();
      sweep();
    });
  }

  // What the sessions use is destroyed after them, and the context, which holds handlers with sessions, before all.
  SessionLimits limits_;
  Service service_;
  std::array<char, 64 * 1024> buffer_{};  // one for all: it is empty again before the next session reads
  std::mutex mutex_;
  std::condition_variable workers_came_;
  std::int64_t workers_ = 0;
  ClientId next_id_ = 1;
  asio::io_context context_{1};
  std::vector<asio::ip::tcp::acceptor> acceptors_;
  asio::steady_timer timer_;
  std::unordered_map<ClientId, std::shared_ptr<Session>> sessions_;
  std::thread thread_;
};

TcpServer::TcpServer(const std::string& host, std::uint16_t port, bool all_interfaces, Milliseconds timeout,
                     SessionLimits limits)
    : fork_generation_(core::fork_generation()) {
  std::vector<Listener> listeners = listen_on(host, port, all_interfaces, deadline_after(timeout));
  port_ = listeners.front().port;
  loop_ = std::make_unique<Loop>(std::move(listeners), limits);
}

TcpServer::~TcpServer() {
  // The thread does not exist in a forked child, and asio would take the parent's sockets out of the epoll set that
  // both share: nothing may be touched there.
  if (fork_generation_ != core::fork_generation()) static_cast<void>(loop_.release());
}

std::int64_t TcpServer::await_workers(std::int64_t workers, Clock::time_point deadline) {
  return loop_->await_workers(workers, deadline);
}

}  // namespace hookline::store
