// TcpServer: the event loop, listening sockets and client timeouts.
#include "store/tcp_server.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <hookline/core/error.hpp>

#include "core/fork.hpp"
#include "store/tcp_address.hpp"
#include "store/tcp_listen.hpp"
#include "store/tcp_session.hpp"

namespace hookline::store {
namespace {

void require_access(const std::vector<Listener>& listeners, const ServerAccess& access, const std::string& name) {
  const bool local =
      std::all_of(listeners.begin(), listeners.end(), [](const Listener& each) { return each.loopback; });
  if (local || !access.token.empty() || access.allow_unauthenticated) return;
  throw InvalidArgument(
      fmt::format("{}: other hosts can reach this address, so the server requires a token. Set HOOKLINE_TOKEN to the "
                  "same secret for all processes of the job (export HOOKLINE_TOKEN=$(openssl rand -hex 32)), or pass "
                  "it as an argument. To serve any client of a trusted network, set allow_unauthenticated or "
                  "HOOKLINE_ALLOW_UNAUTHENTICATED=1.",
                  name));
}

// Leaves a quarter of the process's file descriptors for other uses.
SessionLimits with_default_connections(SessionLimits limits) {
  constexpr std::size_t kMaxFiles = std::size_t{64} * 1024;
  rlimit files{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY;
  const std::size_t file_limit = known ? std::min<std::size_t>(files.rlim_cur, kMaxFiles) : kMaxFiles;
  if (limits.max_connections == 0) limits.max_connections = std::max<std::size_t>(file_limit * 5 / 8, 1);
  if (limits.max_pending_connections == 0)
    limits.max_pending_connections = std::clamp<std::size_t>(file_limit / 8, 1, 256);
  return limits;
}

}  // namespace

class TcpServer::EventLoop {
 public:
  EventLoop(std::vector<Listener> listeners, std::string name, std::string token, const SessionLimits& limits)
      : sessions_(std::move(name), std::move(token), limits),
        timer_(context_),
        sweep_period_(std::clamp<Milliseconds>(std::min(limits.request_timeout, limits.handshake_timeout) / 4,
                                               Milliseconds(10), std::chrono::seconds(1))) {
    for (Listener& listener : listeners) {
      const auto protocol = listener.family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
      acceptors_.emplace_back(context_, protocol, listener.socket.release()).non_blocking(true);
    }
    for (auto& acceptor : acceptors_) accept(acceptor);
    sweep();
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "hookline-store");
      context_.run();
    });
  }

  ~EventLoop() {
    context_.stop();
    thread_.join();
  }

  Sessions& sessions() { return sessions_; }

 private:
  void accept(asio::ip::tcp::acceptor& acceptor) {
    acceptor.async_wait(asio::socket_base::wait_read, [this, &acceptor](asio::error_code error) {
      if (error == asio::error::operation_aborted) return;
      if (error || !sessions_.can_accept()) return accept_later(acceptor);
      asio::ip::tcp::socket socket = acceptor.accept(error);
      const bool gone = error == asio::error::would_block || error == asio::error::connection_aborted;
      if (error && !gone) return accept_later(acceptor);
      if (!error) sessions_.add_session(std::move(socket));
      accept(acceptor);
    });
  }

  // Retries after a delay: without file descriptors, memory or capacity, an immediate retry would busy-loop. Meanwhile
  // connections wait in the kernel's accept queue.
  void accept_later(asio::ip::tcp::acceptor& acceptor) {
    auto pause = std::make_shared<asio::steady_timer>(context_, Milliseconds(100));
    pause->async_wait([this, &acceptor, pause](const asio::error_code& error) {
      if (!error) accept(acceptor);
    });
  }

  void sweep() {
    timer_.expires_after(sweep_period_);
    timer_.async_wait([this](const asio::error_code& error) {
      if (error) return;
      sessions_.close_overdue();
      sweep();
    });
  }

  // Declared before the sockets, so destroyed after them. Pending handlers own their sessions, and destroying those
  // with the context accesses no other member.
  asio::io_context context_{1};
  Sessions sessions_;
  std::vector<asio::ip::tcp::acceptor> acceptors_;
  asio::steady_timer timer_;
  const Milliseconds sweep_period_;
  std::thread thread_;
};

TcpServer::TcpServer(const std::string& host, std::uint16_t port, bool all_interfaces, Milliseconds timeout,
                     ServerAccess access, SessionLimits limits, std::optional<int> listen_fd)
    : fork_generation_(core::fork_generation()) {
  std::vector<Listener> listeners =
      listen_fd ? listen_on_fd(*listen_fd, port) : listen_on(host, port, all_interfaces, deadline_after(timeout));
  port_ = listeners.front().port;
  std::string name = fmt::format("TCPStore({})", endpoint_name(all_interfaces ? "*" : host, port_));
  try {
    require_access(listeners, access, name);
  } catch (...) {
    if (listen_fd) listeners.front().socket.release();  // the caller keeps ownership
    throw;
  }
  loop_ = std::make_unique<EventLoop>(std::move(listeners), std::move(name), std::move(access.token),
                                      with_default_connections(limits));
}

TcpServer::~TcpServer() {
  // A forked child must leak the loop: its thread does not exist there, and asio would remove the parent's sockets from
  // the shared epoll set.
  if (!owned_by_this_process()) static_cast<void>(loop_.release());
}

bool TcpServer::owned_by_this_process() const { return fork_generation_ == core::fork_generation(); }

std::int64_t TcpServer::await_workers(std::int64_t workers, Clock::time_point deadline) {
  return loop_->sessions().await_workers(workers, deadline);
}

}  // namespace hookline::store
