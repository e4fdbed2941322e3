// Sessions: input, execution and output of requests.
#include "store/tcp_session.hpp"

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/interrupt.hpp>

#include "store/tcp_address.hpp"

namespace hookline::store {
namespace {

// A larger reply buffer is freed when it is empty.
constexpr std::size_t kMaxIdleCapacity = 16 * 1024;

bool is_power_of_ten(std::uint64_t number) {
  while (number % 10 == 0 && number > 0) number /= 10;
  return number == 1;
}

}  // namespace

bool Sessions::can_accept() {
  constexpr Milliseconds kMinPendingTime{100};  // far longer than a handshake takes
  if (pending_.size() < limits_.max_pending_connections) return true;
  const std::shared_ptr<Session> oldest = sessions_by_id_.at(*pending_.begin());
  if (Clock::now() < oldest->opened() + kMinPendingTime) return false;
  oldest->close();
  return true;
}

void Sessions::add_session(asio::ip::tcp::socket socket) {
  const ClientId id = next_id_++;
  const auto session = std::make_shared<Session>(std::move(socket), id, *this);
  sessions_by_id_.emplace(id, session);
  pending_.insert(id);
  session->start();
}

void Sessions::close_overdue() {
  const Clock::time_point now = Clock::now();
  std::vector<std::shared_ptr<Session>> overdue;
  for (const auto& [id, session] : sessions_by_id_) {
    if (session->overdue(now)) overdue.push_back(session);
  }
  for (const auto& session : overdue) session->close();
}

std::int64_t Sessions::await_workers(std::int64_t workers, Clock::time_point deadline) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto next_check = std::min(deadline, deadline_after(kInterruptPeriod));
      const bool reached = workers_changed_.wait_until(lock, next_check, [&] { return workers_ >= workers; });
      if (reached || Clock::now() >= deadline) return workers_;
    }
    check_interrupt();
  }
}

void Sessions::wake_waiters() {
  // Sending may close the session of a disconnected client, which wakes no other client.
  for (const ClientId client : service_.take_woken()) {
    const auto found = sessions_by_id_.find(client);
    if (found == sessions_by_id_.end()) continue;
    const std::shared_ptr<Session> session = found->second;
    session->send_stop_waiting();
  }
  if (service_.workers() == workers_) return;  // written by this thread only, so read without the lock
  const std::lock_guard lock(mutex_);
  workers_ = service_.workers();
  workers_changed_.notify_all();
}

void Sessions::log_rejection(RejectReason reason, const std::string& peer) {
  const std::uint64_t count = ++rejections_.at(static_cast<std::size_t>(reason));
  if (!is_power_of_ten(count)) return;
  fmt::print(stderr, "hookline: {}: rejected a connection from {} ({} so far): {}\n", name_, peer, count,
             describe(reason));
}

Session::Session(asio::ip::tcp::socket socket, ClientId id, Sessions& sessions)
    : socket_(std::move(socket)), id_(id), sessions_(sessions), request_started_(Clock::now()) {
  if (!sessions.token_.empty()) handshake_.emplace(sessions.token_);
}

void Session::start() {
  asio::error_code error;
  socket_.non_blocking(true, error);
  if (!error) socket_.set_option(asio::ip::tcp::no_delay(true), error);
  if (error) return close();
  set_keepalive(socket_.native_handle(), sessions_.limits_.keepalive);
  await_input();
}

void Session::await_input() {
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->run_guarded(&Session::on_input);
  });
}

void Session::await_writable() {
  if (std::exchange(awaiting_writable_, true)) return;
  socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](const asio::error_code& error) {
    self->awaiting_writable_ = false;
    if (!error) self->run_guarded(&Session::on_writable);
  });
}

// An error caused by one client, including bad_alloc, must not end the server.
void Session::run_guarded(void (Session::*step)()) {
  if (closed_) return;
  try {
    (this->*step)();
    account_buffered_bytes();
  } catch (const std::exception&) {
    close();
  }
  sessions_.wake_waiters();
}

void Session::on_input() {
  asio::error_code error;
  const std::size_t size = socket_.read_some(asio::buffer(sessions_.buffer_), error);
  if (error && error != asio::error::would_block && error != asio::error::interrupted) return close();
  process_input({sessions_.buffer_.data(), size});
}

void Session::on_writable() {
  flush();
  if (closed_ || unprocessed_.empty() || unsent_bytes() > sessions_.limits_.max_unsent_bytes) return;
  const std::string bytes = std::exchange(unprocessed_, {});
  process_input(bytes);
}

// Returns true once requests may follow, with their bytes left in `bytes`.
bool Session::process_handshake(std::string_view& bytes) {
  const ServerHandshake::State state = handshake_->consume(bytes, output_);
  if (state == ServerHandshake::State::rejected) {
    reject(handshake_->reject_reason());
    return false;
  }
  if (state == ServerHandshake::State::incomplete) return false;
  handshake_.reset();
  return true;
}

// Closing with unread input would send RST and discard the reply. Input is drained until the client closes or
// handshake_timeout expires.
void Session::reject(RejectReason reason) {
  log_rejection(reason);
  rejected_ = true;
  request_started_ = Clock::now();
  if (unsent_bytes() == 0) return close();
  flush();
  asio::error_code ignored;
  if (!closed_) socket_.shutdown(asio::socket_base::shutdown_send, ignored);
}

void Session::log_rejection(RejectReason reason) {
  asio::error_code error;
  const auto peer = socket_.remote_endpoint(error);
  sessions_.log_rejection(reason, error ? "?" : endpoint_name(peer.address().to_string(), peer.port()));
}

void Session::process_input(std::string_view bytes) {
  if (rejected_ && bytes.size() == sessions_.buffer_.size())
    return close();  // far more than a well-behaved client sends
  if (rejected_ || (handshake_ && !process_handshake(bytes))) bytes = {};
  if (closed_) return;
  // Rejects anything but `validate` as the first request.
  if (!admitted_ && !bytes.empty() && reader_.pending_bytes() == 0 &&
      bytes.front() != static_cast<char>(Query::validate)) {
    return reject(RejectReason::malformed);
  }
  Request request;
  while (!bytes.empty()) {
    if (unsent_bytes() > sessions_.limits_.max_unsent_bytes) {
      flush();
      if (closed_) return;
      if (unsent_bytes() > sessions_.limits_.max_unsent_bytes) {  // resumed by on_writable
        unprocessed_ = bytes;
        return;
      }
    }
    const ParseStatus state = reader_.read(bytes, request);
    if (state == ParseStatus::invalid) reject(RejectReason::malformed);
    if (state == ParseStatus::complete && !serve(request)) {
      if (const auto exceeded = sessions_.service_.take_reject_reason()) log_rejection(*exceeded);
      return close();
    }
    if (closed_) return;
    if (rejected_) break;
    if (state == ParseStatus::complete && admitted_) {
      request_started_.reset();
    } else if (!request_started_) {
      request_started_ = Clock::now();
    }
  }
  flush();
  if (!closed_) await_input();
}

bool Session::serve(const Request& request) {
  if (admitted_ && request.query == Query::ping && static_cast<std::uint32_t>(request.number) == kTokenPing) {
    append_number(output_, kTokenPing);
    reject(RejectReason::token_unexpected);
    return true;
  }
  return admitted_ ? sessions_.service_.serve(id_, request, output_) : open_protocol(request);
}

// Handles the first request of a connection.
bool Session::open_protocol(const Request& request) {
  if (request.query != Query::validate || request.number != kMagic) return false;
  if (sessions_.admitted_ >= sessions_.limits_.max_connections) {
    append_number(output_, kServerFull);  // replaces the reply to the client's ping
    reject(RejectReason::max_connections);
    return true;
  }
  admitted_ = true;
  ++sessions_.admitted_;
  sessions_.pending_.erase(id_);
  return true;
}

// Updates the total of buffered bytes of all clients, and closes this session if it exceeds the limit.
void Session::account_buffered_bytes() {
  const std::size_t bytes = closed_ ? 0 : reader_.pending_bytes() + output_.size() + unprocessed_.size();
  sessions_.buffered_bytes_ += bytes - std::exchange(buffered_bytes_, bytes);
  if (sessions_.buffered_bytes_ <= sessions_.limits_.quota.max_bytes || bytes <= sessions_.buffer_.size()) return;
  log_rejection(RejectReason::max_buffered_bytes);
  close();
}

void Session::send_stop_waiting() {
  if (closed_) return;
  append_number(output_, WaitReply::stop_waiting);
  flush();
}

void Session::flush() {
  asio::error_code error;
  while (unsent_bytes() > 0 && !error) {
    output_offset_ += socket_.write_some(asio::buffer(output_.data() + output_offset_, unsent_bytes()), error);
  }
  if (error && error != asio::error::would_block) return close();
  if (unsent_bytes() == 0 || output_offset_ > sessions_.limits_.max_unsent_bytes) {
    output_.erase(0, output_offset_);
    output_offset_ = 0;
  }
  if (output_.empty() && output_.capacity() > kMaxIdleCapacity) output_ = std::string();
  if (unsent_bytes() > 0) await_writable();
}

bool Session::overdue(Clock::time_point now) const {
  if (!request_started_) return false;
  const SessionLimits& limits = sessions_.limits_;
  if (!admitted_ || rejected_) return now > *request_started_ + limits.handshake_timeout;
  const auto bytes_time = std::chrono::milliseconds(reader_.pending_bytes() * 1000 / limits.min_bytes_per_second);
  return now > *request_started_ + limits.request_timeout + bytes_time;
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  asio::error_code ignored;
  socket_.close(ignored);
  sessions_.service_.remove_client(id_);
  sessions_.buffered_bytes_ -= std::exchange(buffered_bytes_, 0);
  if (admitted_) --sessions_.admitted_;
  sessions_.pending_.erase(id_);
  sessions_.sessions_by_id_.erase(id_);
}

}  // namespace hookline::store
