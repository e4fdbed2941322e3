// CountingProxy: one thread polls all connections.
#include "harness/counting_proxy.hpp"

#include <array>
#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace hookline::testing {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace

CountingProxy::CountingProxy(std::uint16_t server) : server_port_(server) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  require(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0, "bind");
  require(::listen(listener_, 16) == 0, "listen");
  require(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0, "getsockname");
  require(::pipe(wake_) == 0, "pipe");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

CountingProxy::~CountingProxy() {
  ::close(wake_[1]);
  thread_.join();
  for (const Connection& line : connections_) {
    ::close(line.client);
    ::close(line.server);
  }
  ::close(wake_[0]);
  ::close(listener_);
}

void CountingProxy::run() {
  for (;;) {
    std::vector<pollfd> polled = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Connection& line : connections_) {
      polled.push_back({line.client, POLLIN, 0});
      polled.push_back({line.server, POLLIN, 0});
    }
    ::poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) return;
    for (std::size_t i = connections_.size(); i-- > 0;) {
      bool is_open = true;
      if (polled[2 + 2 * i].revents != 0) is_open = forward(connections_[i], true);
      if (is_open && polled[3 + 2 * i].revents != 0) is_open = forward(connections_[i], false);
      if (is_open) continue;
      ::close(connections_[i].client);
      ::close(connections_[i].server);
      connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (polled[1].revents != 0) accept();
  }
}

void CountingProxy::accept() {
  Connection line{::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC),
                  ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const sockaddr_in address = loopback(server_port_);
  require(::connect(line.server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "connect");
  const int on = 1;
  ::setsockopt(line.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(line.server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  connections_.push_back(line);
}

bool CountingProxy::forward(Connection& connection, bool from_client) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::recv(from_client ? connection.client : connection.server, buffer.data(), buffer.size(), 0);
  if (got <= 0) return false;
  if (!from_client && connection.request_sent) ++round_trips_;
  connection.request_sent = from_client;
  const int to = from_client ? connection.server : connection.client;
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t n = ::send(to, buffer.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += n;
  }
  return true;
}

}  // namespace hookline::testing
