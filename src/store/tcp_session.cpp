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
constexpr std::size_t kKeptCapacity = 16 * 1024;

bool is_power_of_ten(std::uint64_t number) {
  while (number % 10 == 0 && number > 0) number /= 10;
  return number == 1;
}

}  // namespace

bool Sessions::make_room() {
  constexpr Milliseconds kChance{100};  // far longer than a handshake takes
  if (opening_.size() < limits_.pending) return true;
  const std::shared_ptr<Session> oldest = open_.at(*opening_.begin());
  if (Clock::now() < oldest->opened() + kChance) return false;
  oldest->close();
  return true;
}

void Sessions::open(asio::ip::tcp::socket socket) {
  const ClientId id = next_id_++;
  const auto session = std::make_shared<Session>(std::move(socket), id, *this);
  open_.emplace(id, session);
  opening_.insert(id);
  session->start();
}

void Sessions::close_overdue() {
  const Clock::time_point now = Clock::now();
  std::vector<std::shared_ptr<Session>> late;
  for (const auto& [id, session] : open_) {
    if (session->overdue(now)) late.push_back(session);
  }
  for (const auto& session : late) session->close();
}

std::int64_t Sessions::await_workers(std::int64_t workers, Clock::time_point deadline) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto piece = std::min(deadline, deadline_after(kInterruptPeriod));
      const bool came = workers_came_.wait_until(lock, piece, [&] { return workers_ >= workers; });
      if (came || Clock::now() >= deadline) return workers_;
    }
    check_interrupt();
  }
}

void Sessions::served() {
  // Sending may close the session of a disconnected client, which wakes no other client.
  for (const ClientId client : service_.take_woken()) {
    const auto found = open_.find(client);
    if (found == open_.end()) continue;
    const std::shared_ptr<Session> session = found->second;
    session->stop_waiting();
  }
  if (service_.workers() == workers_) return;  // written by this thread only, so read without the lock
  const std::lock_guard lock(mutex_);
  workers_ = service_.workers();
  workers_came_.notify_all();
}

void Sessions::log_refusal(Refusal refusal, const std::string& peer) {
  const std::uint64_t count = ++refusals_.at(static_cast<std::size_t>(refusal));
  if (!is_power_of_ten(count)) return;
  fmt::print(stderr, "hookline: {}: rejected a connection from {} ({} so far): {}\n", name_, peer, count,
             explain(refusal));
}

Session::Session(asio::ip::tcp::socket socket, ClientId id, Sessions& all)
    : socket_(std::move(socket)), id_(id), all_(all), begun_(Clock::now()) {
  if (!all.token_.empty()) handshake_.emplace(all.token_);
}

void Session::start() {
  asio::error_code error;
  socket_.non_blocking(true, error);
  if (!error) socket_.set_option(asio::ip::tcp::no_delay(true), error);
  if (error) return close();
  set_keepalive(socket_.native_handle(), all_.limits_.keepalive);
  await_input();
}

void Session::await_input() {
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](const asio::error_code& error) {
    if (!error) self->guarded(&Session::on_input);
  });
}

void Session::await_room() {
  if (std::exchange(awaiting_room_, true)) return;
  socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](const asio::error_code& error) {
    self->awaiting_room_ = false;
    if (!error) self->guarded(&Session::on_room);
  });
}

// An error caused by one client, including bad_alloc, must not end the server.
void Session::guarded(void (Session::*step)()) {
  if (closed_) return;
  try {
    (this->*step)();
    account();
  } catch (const std::exception&) {
    close();
  }
  all_.served();
}

void Session::on_input() {
  asio::error_code error;
  const std::size_t size = socket_.read_some(asio::buffer(all_.buffer_), error);
  if (error && error != asio::error::would_block && error != asio::error::interrupted) return close();
  take({all_.buffer_.data(), size});
}

void Session::on_room() {
  flush();
  if (closed_ || unread_.empty() || unsent() > all_.limits_.unsent) return;
  const std::string bytes = std::exchange(unread_, {});
  take(bytes);
}

// Returns true once requests may follow, with their bytes left in `bytes`.
bool Session::take_handshake(std::string_view& bytes) {
  const ServerHandshake::State state = handshake_->take(bytes, out_);
  if (state == ServerHandshake::State::refused) {
    refuse(handshake_->refusal());
    return false;
  }
  if (state == ServerHandshake::State::incomplete) return false;
  handshake_.reset();
  return true;
}

// Closing with unread input would send RST and discard the reply. Input is drained until the client closes or
// handshake_timeout expires.
void Session::refuse(Refusal refusal) {
  log_refusal(refusal);
  refused_ = true;
  begun_ = Clock::now();
  if (unsent() == 0) return close();
  flush();
  asio::error_code ignored;
  if (!closed_) socket_.shutdown(asio::socket_base::shutdown_send, ignored);
}

void Session::log_refusal(Refusal refusal) {
  asio::error_code error;
  const auto peer = socket_.remote_endpoint(error);
  all_.log_refusal(refusal, error ? "?" : endpoint_name(peer.address().to_string(), peer.port()));
}

void Session::take(std::string_view bytes) {
  if (refused_ && bytes.size() == all_.buffer_.size()) return close();  // far more than a well-behaved client sends
  if (refused_ || (handshake_ && !take_handshake(bytes))) bytes = {};
  if (closed_) return;
  // Rejects anything but `validate` as the first request.
  if (!admitted_ && !bytes.empty() && reader_.held() == 0 && bytes.front() != static_cast<char>(Query::validate)) {
    return refuse(Refusal::malformed);
  }
  Request request;
  while (!bytes.empty()) {
    if (unsent() > all_.limits_.unsent) {
      flush();
      if (closed_) return;
      if (unsent() > all_.limits_.unsent) {  // resumed by on_writable
        unread_ = bytes;
        return;
      }
    }
    const Scan state = reader_.read(bytes, request);
    if (state == Scan::bad) refuse(Refusal::malformed);
    if (state == Scan::complete && !serve(request)) {
      if (const auto exceeded = all_.service_.take_refusal()) log_refusal(*exceeded);
      return close();
    }
    if (closed_) return;
    if (refused_) break;
    if (state == Scan::complete && admitted_) {
      begun_.reset();
    } else if (!begun_) {
      begun_ = Clock::now();
    }
  }
  flush();
  if (!closed_) await_input();
}

bool Session::serve(const Request& request) {
  if (admitted_ && request.query == Query::ping && static_cast<std::uint32_t>(request.number) == kTokenPing) {
    append_number(out_, kTokenPing);
    refuse(Refusal::token_unexpected);
    return true;
  }
  return admitted_ ? all_.service_.serve(id_, request, out_) : open_protocol(request);
}

// Handles the first request of a connection.
bool Session::open_protocol(const Request& request) {
  if (request.query != Query::validate || request.number != kMagic) return false;
  if (all_.admitted_ >= all_.limits_.connections) {
    append_number(out_, kServerFull);  // replaces the reply to the client's ping
    refuse(Refusal::connections);
    return true;
  }
  admitted_ = true;
  ++all_.admitted_;
  all_.opening_.erase(id_);
  return true;
}

// Updates the total of buffered bytes of all clients, and closes this session if it exceeds the limit.
void Session::account() {
  const std::size_t bytes = closed_ ? 0 : reader_.held() + out_.size() + unread_.size();
  all_.buffered_bytes_ += bytes - std::exchange(buffered_bytes_, bytes);
  if (all_.buffered_bytes_ <= all_.limits_.quota.bytes || bytes <= all_.buffer_.size()) return;
  log_refusal(Refusal::buffered_bytes);
  close();
}

void Session::stop_waiting() {
  if (closed_) return;
  append_number(out_, WaitReply::stop_waiting);
  flush();
}

void Session::flush() {
  asio::error_code error;
  while (unsent() > 0 && !error) {
    out_at_ += socket_.write_some(asio::buffer(out_.data() + out_at_, unsent()), error);
  }
  if (error && error != asio::error::would_block) return close();
  if (unsent() == 0 || out_at_ > all_.limits_.unsent) {
    out_.erase(0, out_at_);
    out_at_ = 0;
  }
  if (out_.empty() && out_.capacity() > kKeptCapacity) out_ = std::string();
  if (unsent() > 0) await_room();
}

bool Session::overdue(Clock::time_point now) const {
  if (!begun_) return false;
  const SessionLimits& limits = all_.limits_;
  if (!admitted_ || refused_) return now > *begun_ + limits.handshake;
  const auto bytes_time = std::chrono::milliseconds(reader_.held() * 1000 / limits.slowest);
  return now > *begun_ + limits.grace + bytes_time;
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  asio::error_code ignored;
  socket_.close(ignored);
  all_.service_.forget(id_);
  all_.buffered_bytes_ -= std::exchange(buffered_bytes_, 0);
  if (admitted_) --all_.admitted_;
  all_.opening_.erase(id_);
  all_.open_.erase(id_);
}

}  // namespace hookline::store
