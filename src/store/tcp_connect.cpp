// Connection setup of TCP store clients: resolve, connect, authenticate and handshake.
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

// Time limit per address: an address that drops packets must leave time for the others.
constexpr Milliseconds kConnectTimeout = std::chrono::seconds(10);

// True after a TCP self-connect: the ephemeral source port equals the destination port.
bool is_self_connected(int socket) {
  SocketAddress own;
  SocketAddress peer;
  own.size = peer.size = sizeof(sockaddr_storage);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own.storage), &own.size);
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size);
  return own == peer;
}

// Returns 0 or the error number.
int connect_before(int socket, const SocketAddress& address, Clock::time_point deadline) {
  if (::connect(socket, address.get(), address.size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  pollfd waiting{socket, POLLOUT, 0};
  const Clock::time_point end = std::min(deadline, deadline_after(kConnectTimeout));
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
  ExponentialBackoff backoff(deadline);
  std::string reason;
  do {
    if (connect_once(deadline, reason)) return;
  } while (backoff.wait());
  throw NetworkTimeout(
      fmt::format("TCPStore({}): The client socket has timed out after {}ms while trying to connect to ({}, {}). Last "
                  "attempt: {}. Check that the process that serves the store is running and listens on this address.",
                  endpoint_, timeout.count(), host_, port_, reason));
}

bool TcpClient::connect_once(Clock::time_point deadline, std::string& reason) {
  for (const SocketAddress& address : resolve(host_, port_, Purpose::connect, deadline)) {
    if (connect_to(address, deadline, reason) && open_protocol(deadline, reason)) return true;
    close_socket();
  }
  return false;
}

bool TcpClient::connect_to(const SocketAddress& address, Clock::time_point deadline, std::string& reason) {
  socket_ = core::FileDescriptor(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = socket_ ? connect_before(socket_.get(), address, deadline) : errno;
  if (error == EMFILE || error == ENFILE) {
    throw ResourceError(
        fmt::format("TCPStore({}): no file descriptor for a connection: {}. Raise the limit (ulimit -n).", endpoint_,
                    system_message(error)));
  }
  if (error == 0 && is_self_connected(socket_.get())) error = ECONNREFUSED;
  if (error != 0) {
    reason = system_message(error);
    return false;
  }
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  set_keepalive(socket_.get(), options_.keepalive);
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) & ~O_NONBLOCK);
  return true;
}

// Authenticates, then sends the first requests of the protocol and waits for the reply. A server with a full accept
// queue may reset the connection here, so failures are retried.
bool TcpClient::open_protocol(Clock::time_point deadline, std::string& reason) {
  const auto nonce = static_cast<std::uint32_t>(::getpid());
  const std::string hello =
      RequestBuilder(Query::validate).number(kMagic).bytes() + RequestBuilder(Query::ping).number(nonce).bytes();
  std::uint32_t answer = 0;
  try {
    if (!options_.token.empty()) authenticate(deadline);
    send(hello, deadline);
    await_reply(deadline);
    answer = read_number<std::uint32_t>(deadline);
  } catch (const Error& error) {
    if (!failure_) throw;  // an interrupt or a handshake error
    reason = error.what();
    failure_ = nullptr;
    return false;
  }
  if (answer == nonce) return true;
  if (answer == kTokenRequired) {
    throw_refused(
        "the server requires a token. Set HOOKLINE_TOKEN to the token of the job, or pass it as an argument.");
  }
  if (answer == kServerFull) {
    throw_refused(
        "the server has reached max_connections. Raise max_connections or the file descriptor limit (ulimit -n) of the "
        "server process.");
  }
  throw ResourceError(
      fmt::format("TCPStore({}): the server does not use the TCPStore protocol. Check which program listens on this "
                  "port.",
                  endpoint_));
}

void TcpClient::await_reply(Clock::time_point deadline) {
  while (!wait_for_reply(std::min(deadline, deadline_after(kInterruptPeriod))) && Clock::now() < deadline) {
    check_interrupt();
  }
}

void TcpClient::throw_refused(const std::string& reason) const {
  throw ResourceError(fmt::format("TCPStore({}): {}", endpoint_, reason));
}

void TcpClient::authenticate(Clock::time_point deadline) {
  const ClientHandshake handshake(options_.token);
  send(handshake.hello(), deadline);
  await_reply(deadline);
  switch (read_number<HandshakeReply>(deadline)) {
    case HandshakeReply::challenge: break;
    case HandshakeReply::no_token:
      throw_refused(
          "this process has a token and the server has none. Set HOOKLINE_TOKEN for the server process; for a server "
          "of PyTorch, unset HOOKLINE_TOKEN or pass an empty token.");
    case HandshakeReply::other_version:
      throw_refused(
          "the server uses another version of the handshake. Use the same version of hookline in all processes.");
    default: throw_refused("unexpected reply to the handshake. Check which program listens on this port.");
  }
  std::string challenge(kChallengeBytes, '\0');
  read(challenge.data(), challenge.size(), deadline);
  if (handshake.verify(challenge)) return send(handshake.proof(challenge), deadline);
  send(std::string(kProofBytes, '\0'), deadline);  // an invalid proof, so that the server logs the mismatch
  throw_refused(
      "the server's token differs from that of this process. Start all processes of the job with the same "
      "HOOKLINE_TOKEN, and check whether another job uses this port.");
}

}  // namespace hookline::store
