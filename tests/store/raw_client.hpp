// RawClient: a raw connection to the TCP store server.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "store/tcp_address.hpp"
#include "store/wire.hpp"

namespace hookline::store {

/// Sends arbitrary bytes to a TCP store server, for protocol tests.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) {
    const SocketAddress address =
        resolve("127.0.0.1", port, Purpose::connect, deadline_after(std::chrono::seconds(5))).front();
    socket_ = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(socket_, address.get(), address.size) != 0) ADD_FAILURE() << system_message(errno);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient() { ::close(socket_); }

  // Returns the number of bytes sent; less than all if the server closed the connection.
  std::size_t send(std::string_view bytes, int flags = 0) const {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t result = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | flags);
      if (result <= 0) break;
      sent += static_cast<std::size_t>(result);
    }
    return sent;
  }

  std::string receive(std::size_t size) const {
    std::string bytes(size, '\0');
    std::size_t got = 0;
    while (got < size && readable()) {
      const ssize_t result = ::recv(socket_, bytes.data() + got, size - got, 0);
      if (result <= 0) break;
      got += static_cast<std::size_t>(result);
    }
    bytes.resize(got);
    return bytes;
  }

  int socket() const { return socket_; }

  // True if the server closes the connection within 10 s of its last byte.
  bool is_closed() const {
    std::array<char, 4096> bytes;
    while (readable()) {
      if (::recv(socket_, bytes.data(), bytes.size(), 0) <= 0) return true;
    }
    return false;
  }

 private:
  bool readable() const {
    pollfd waiting{socket_, POLLIN, 0};
    return ::poll(&waiting, 1, 10'000) == 1;
  }

  int socket_;
};

/// Returns the validate request, which a client of PyTorch's protocol sends first.
inline std::string hello() { return RequestBuilder(Query::validate).number(kMagic).bytes(); }

}  // namespace hookline::store
