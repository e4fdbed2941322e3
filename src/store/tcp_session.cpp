// The way of a request through a session, and of the reply back.
#include "store/tcp_session.hpp"

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <utility>

#include <hookline/core/interrupt.hpp>

namespace hookline::store {
namespace {

// A buffer of replies that has grown beyond this is let go of when it is empty.
constexpr std::size_t kKeptCapacity = 16 * 1024;

}  // namespace

void Sessions::open(asio::ip::tcp::socket socket) {
  const ClientId id = next_id_++;
  const auto session = std::make_shared<Session>(std::move(socket), id, *this);
  open_.emplace(id, session);
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
  // A woken client may turn out to be gone while it is told, which wakes nobody else.
  for (const ClientId client : service_.take_woken()) {
    const auto found = open_.find(client);
    if (found == open_.end()) continue;
    const std::shared_ptr<Session> session = found->second;
    session->stop_waiting();
  }
  if (service_.workers() == workers_) return;  // written by this thread alone
  const std::lock_guard lock(mutex_);
  workers_ = service_.workers();
  workers_came_.notify_all();
}

Session::Session(asio::ip::tcp::socket socket, ClientId id, Sessions& all)
    : socket_(std::move(socket)), id_(id), all_(all), begun_(Clock::now()) {}

void Session::start() {
  asio::error_code error;
  socket_.non_blocking(true, error);
  if (!error) socket_.set_option(asio::ip::tcp::no_delay(true), error);
  if (error) return close();
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

// What one client brings about, a lack of memory too, must not end the server.
void Session::guarded(void (Session::*step)()) {
  if (closed_) return;
  try {
    (this->*step)();
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

void Session::take(std::string_view bytes) {
  Request request;
  while (!bytes.empty()) {
    if (unsent() > all_.limits_.unsent) {
      flush();
      if (closed_) return;
      if (unsent() > all_.limits_.unsent) {  // reading goes on from on_room
        unread_ = bytes;
        return;
      }
    }
    const Scan state = reader_.read(bytes, request);
    if (state == Scan::bad || (state == Scan::complete && !serve(request))) return close();
    if (state == Scan::complete) {
      begun_.reset();
    } else if (!begun_) {
      begun_ = Clock::now();
    }
  }
  flush();
  if (!closed_) await_input();
}

bool Session::serve(const Request& request) {
  if (admitted_) return all_.service_.serve(id_, request, out_);
  // The opening of every connection: nothing is served before it.
  admitted_ = request.query == Query::validate && request.number == kMagic;
  return admitted_;
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
  const auto bytes_time = std::chrono::milliseconds(reader_.held() * 1000 / limits.slowest);
  return now > *begun_ + limits.grace + bytes_time;
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  asio::error_code ignored;
  socket_.close(ignored);
  all_.service_.forget(id_);
  all_.open_.erase(id_);
}

}  // namespace hookline::store
