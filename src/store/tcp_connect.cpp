// The opening of a TCP store connection, from the host's name to the server's first answer.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "store/handshake.hpp"
#include "store/store_error.hpp"
#include "store/tcp_client.hpp"
#include "store/wire.hpp"

namespace hookline::store {
namespace {

// One address that swallows packets must not use up the time of the others.
constexpr Milliseconds kConnectTime = std::chrono::seconds(10);

// A socket that looks for a free port may find the very one it connects to, and then talks to itself.
bool talks_to_itself(int socket) {
  SocketAddress own;
  SocketAddress peer;
  own.size = peer.size = sizeof(sockaddr_storage);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own.storage), &own.size);
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size);
  return own == peer;
}

// Zero, or the error number.
int connect_before(int socket, const SocketAddress& address, Clock::time_point deadline) {
  if (::connect(socket, address.get(), address.size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd waiting{socket, POLLOUT, 0};
  const Clock::time_point end = std::min(deadline, deadline_after(kConnectTime));
  while (::poll(&waiting, 1, static_cast<int>(std::min(time_left(end), kInterruptPeriod).count())) <= 0) {
    if (time_left(end) == Milliseconds(0)) return ETIMEDOUT;
    check_interrupt();
  }
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

TcpClient::TcpClient(std::string host, std::uint16_t port, Milliseconds timeout, ClientOptions options)
    : host_(std::move(host)), port_(port), endpoint_(endpoint_name(host_, port)), options_(std::move(options)) {
  const Clock::time_point deadline = deadline_after(timeout);
  Pauses pauses(deadline);
  std::string why;
  do {
    if (connect_once(deadline, why)) return;
  } while (pauses.pause());
  throw NetworkTimeout(
      fmt::format("TCPStore({}): The client socket has timed out after {}ms while trying to connect to ({}, {}). Last "
                  "attempt: {}. See whether the process that keeps the store has started and listens on this address.",
                  endpoint_, timeout.count(), host_, port_, why));
}

bool TcpClient::connect_once(Clock::time_point deadline, std::string& why) {
  for (const SocketAddress& address : resolve(host_, port_, Purpose::connect, deadline)) {
    if (connect_to(address, deadline, why) && introduce(deadline, why)) return true;
    close_socket();
  }
  return false;
}

bool TcpClient::connect_to(const SocketAddress& address, Clock::time_point deadline, std::string& why) {
  socket_ = core::Descriptor(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = socket_ ? connect_before(socket_.get(), address, deadline) : errno;
  if (error == EMFILE || error == ENFILE) {
    throw ResourceError(
        fmt::format("TCPStore({}): no file descriptor for a connection: {}; raise the limit (ulimit -n)", endpoint_,
                    system_message(error)));
  }
  if (error == 0 && talks_to_itself(socket_.get())) error = ECONNREFUSED;
  if (error != 0) {
    why = system_message(error);
    return false;
  }
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  set_keepalive(socket_.get(), options_.keepalive);
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) & ~O_NONBLOCK);
  return true;
}

// What a new connection says first, and the answer that shows that a store is there. A server whose queue of new
// connections is full may break off here, so this is part of what is tried again.
bool TcpClient::introduce(Clock::time_point deadline, std::string& why) {
  const auto nonce = static_cast<std::uint32_t>(::getpid());
  const std::string hello =
      RequestBytes(Query::validate).number(kMagic).bytes() + RequestBytes(Query::ping).number(nonce).bytes();
  std::uint32_t answer = 0;
  try {
    if (!options_.token.empty()) authenticate(deadline);
    send(hello, deadline);
    await_reply(deadline);
    answer = read_number<std::uint32_t>(deadline);
  } catch (const Error& error) {
    if (!failure_) throw;  // an interrupt's, or of the handshake
    why = error.what();
    failure_ = nullptr;
    return false;
  }
  if (answer == nonce) return true;
  if (answer == kTokenRequired) {
    refused("the server requires a token; set HOOKLINE_TOKEN to the token of the job, or give it as an argument");
  }
  if (answer == kServerFull) {
    refused(
        "the server has as many connections as it allows; raise max_connections or the limit on file descriptors "
        "(ulimit -n) of the process that serves");
  }
  throw ResourceError(
      fmt::format("TCPStore({}): what listens there does not speak the store's protocol; see whether "
                  "another program has this port",
                  endpoint_));
}

void TcpClient::await_reply(Clock::time_point deadline) {
  while (!reply_came(std::min(deadline, deadline_after(kInterruptPeriod))) && Clock::now() < deadline) {
    check_interrupt();
  }
}

void TcpClient::refused(const std::string& why) const {
  throw ResourceError(fmt::format("TCPStore({}): {}", endpoint_, why));
}

void TcpClient::authenticate(Clock::time_point deadline) {
  const ClientHandshake handshake(options_.token);
  send(handshake.hello(), deadline);
  await_reply(deadline);
  switch (read_number<HandshakeReply>(deadline)) {
    case HandshakeReply::challenge: break;
    case HandshakeReply::no_token:
      refused(
          "this process has a token and the server has none; set HOOKLINE_TOKEN for the process that serves, too. For "
          "a store that PyTorch serves, unset HOOKLINE_TOKEN or give an empty token");
    case HandshakeReply::other_version:
      refused("the server speaks another version of the handshake; use the same version of hookline everywhere");
    default: refused("what listens there answers the handshake with other bytes; see which program has this port");
  }
  std::string challenge(kChallengeBytes, '\0');
  read(challenge.data(), challenge.size(), deadline);
  if (handshake.verify(challenge)) return send(handshake.proof(challenge), deadline);
  send(std::string(kProofBytes, '\0'), deadline);  // so that the server's log says so, too
  refused(
      "the server's token differs from that of this process; start all processes of the job with the same "
      "HOOKLINE_TOKEN, and see whether another job has this port");
}

}  // namespace hookline::store
