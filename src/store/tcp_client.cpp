// TcpClient: sending and receiving with deadlines.
#include "store/tcp_client.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "store/store_error.hpp"

#include "store/wire.hpp"

namespace hookline::store {
namespace {

constexpr const char* kClosed =
    "the server closed it, possibly because this client exceeded a limit (see the server's stderr)";

std::string describe_loss(int error) { return error == ECONNRESET || error == EPIPE ? kClosed : system_message(error); }

}  // namespace

void TcpClient::close_socket() {
  socket_ = core::FileDescriptor();
  receive_timeout_ = Milliseconds(0);
  buffer_begin_ = buffer_end_ = 0;
}

void TcpClient::begin(const char* operation, std::string_view key) {
  operation_ = operation;
  key_ = key;
  if (failure_) std::rethrow_exception(failure_);
}

std::string TcpClient::call_name() const {
  constexpr std::size_t kShown = 120;
  if (key_.empty()) return fmt::format("TCPStore({}).{}()", endpoint_, operation_);
  return fmt::format("TCPStore({}).{}(\"{}{}\")", endpoint_, operation_, key_.substr(0, kShown),
                     key_.size() > kShown ? "…" : "");
}

void TcpClient::fail_with(std::exception_ptr error) {
  failure_ = error;
  close_socket();
  std::rethrow_exception(error);
}

void TcpClient::throw_connection_lost(const std::string& reason) {
  fail_with(std::make_exception_ptr(NetworkLost(
      fmt::format("{}: the connection to the server at {} is lost: {}. Check whether the server process has ended, and "
                  "create a new TCPStore.",
                  call_name(), endpoint_, reason))));
}

void TcpClient::send(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw_connection_lost(describe_loss(errno));
    pollfd waiting{socket_.get(), POLLOUT, 0};
    const Milliseconds left = time_left(deadline);
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1 << 30)));
    if (ready == 0 && time_left(deadline) == Milliseconds(0)) {
      fail_with(std::make_exception_ptr(NetworkTimeout(call_name() +
                                                       ": the server does not read requests. Check whether it is "
                                                       "stopped or overloaded, and create a new TCPStore.")));
    }
  }
}

// SO_RCVTIMEO saves a poll() per reply; it rarely changes.
void TcpClient::set_receive_timeout(Milliseconds timeout) {
  if (timeout == receive_timeout_) return;
  timeval value{};
  value.tv_sec = timeout.count() / 1000;
  value.tv_usec = (timeout.count() % 1000) * 1000;
  if (::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value)) != 0)
    throw_connection_lost(system_message(errno));
  receive_timeout_ = timeout;
}

// Returns false at the deadline.
bool TcpClient::receive(char* out, std::size_t size, Clock::time_point deadline, std::size_t& received) {
  while (true) {
    const Milliseconds left = time_left(deadline);
    if (left > Milliseconds(0)) set_receive_timeout(left);
    const ssize_t result = ::recv(socket_.get(), out, size, left > Milliseconds(0) ? 0 : MSG_DONTWAIT);
    if (result > 0) {
      received = static_cast<std::size_t>(result);
      return true;
    }
    if (result == 0) throw_connection_lost(kClosed);
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw_connection_lost(describe_loss(errno));
    if (left == Milliseconds(0)) return false;
  }
}

bool TcpClient::wait_for_reply(Clock::time_point deadline) {
  if (buffer_begin_ < buffer_end_) return true;
  buffer_.resize(kBuffer);
  buffer_begin_ = buffer_end_ = 0;
  return receive(buffer_.data(), buffer_.size(), deadline, buffer_end_);
}

void TcpClient::cancel_wait(Clock::time_point deadline) {
  send(RequestBuilder(Query::cancel_wait).bytes(), deadline);
  cancel_pending_ = true;
}

bool TcpClient::confirm_cancel(Clock::time_point deadline, bool* completed) {
  while (cancel_pending_) {
    if (!wait_for_reply(deadline)) return false;
    const auto reply = read_number<WaitReply>(deadline);
    cancel_pending_ = reply == WaitReply::stop_waiting;
    if (reply > WaitReply::wait_canceled) throw_connection_lost(kUnexpectedReply);
    if (cancel_pending_ && completed) *completed = true;
  }
  return true;
}

void TcpClient::throw_no_reply() {
  fail_with(std::make_exception_ptr(
      NetworkTimeout(call_name() + ": the server did not reply. Check whether it is stopped or overloaded, and "
                                   "create a new TCPStore.")));
}

void TcpClient::read(char* out, std::size_t size, Clock::time_point deadline) {
  while (size > 0) {
    std::size_t step = 0;
    if (buffer_begin_ == buffer_end_ && size >= kBuffer) {  // large values bypass the buffer
      if (!receive(out, size, deadline, step)) throw_no_reply();
    } else {
      if (!wait_for_reply(deadline)) throw_no_reply();
      step = std::min(size, buffer_end_ - buffer_begin_);
      std::memcpy(out, buffer_.data() + buffer_begin_, step);
      buffer_begin_ += step;
    }
    out += step;
    size -= step;
  }
}

std::string TcpClient::read_text(Clock::time_point deadline) {
  const auto size = read_number<std::uint64_t>(deadline);
  // Grows with the received bytes, so that a false size cannot exhaust memory.
  constexpr std::size_t kStep = 256 * 1024;
  std::string text;
  while (text.size() < size) {
    const std::size_t had = text.size();
    text.resize(had + std::min<std::uint64_t>(size - had, std::max(had, kStep)));
    read(text.data() + had, text.size() - had, deadline);
  }
  return text;
}

}  // namespace hookline::store
