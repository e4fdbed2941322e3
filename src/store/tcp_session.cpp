// The way of a request through a session, and of the reply back.
#include "store/tcp_session.hpp"

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <utility>

namespace hookline::store {
namespace {

// Buffers that have grown beyond this are let go of when they are empty.
constexpr std::size_t kKeptCapacity = 16 * 1024;

}  // namespace

Session::Session(asio::ip::tcp::socket socket, ClientId id, SessionHost& host)
    : socket_(std::move(socket)), id_(id), host_(host), begun_(Clock::now()) {}

void Session::start() {
  asio::error_code error;
  socket_.non_blocking(true, error);
  if (!error) socket_.set_option(asio::ip::tcp::no_delay(true), error);
  if (error) return close();
  await_input();
}

// The opening of every connection: nothing is served before this has said yes.
bool Session::admit(const Request& request) {
  return request.query == Query::validate && static_cast<std::uint32_t>(request.number) == kMagic;
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
  host_.served();
}

void Session::on_input() {
  asio::error_code error;
  const std::span<char> buffer = host_.read_buffer();
  const std::size_t size = socket_.read_some(asio::buffer(buffer.data(), buffer.size()), error);
  if (error && error != asio::error::would_block && error != asio::error::interrupted) return close();
  take({buffer.data(), size});
}

void Session::on_room() {
  flush();
  if (closed_ || unread_.empty() || unsent() > host_.limits().unsent) return;
  const std::string bytes = std::exchange(unread_, {});
  take(bytes);
}

void Session::take(std::string_view bytes) {
  while (!bytes.empty()) {
    if (unsent() > host_.limits().unsent) {
      flush();
      if (closed_) return;
      if (unsent() > host_.limits().unsent) {  // reading goes on from on_room
        unread_ = bytes;
        return;
      }
    }
    std::string_view whole;
    const Scan state = reader_.read(bytes, whole);
    if (state == Scan::bad || (state == Scan::complete && !serve(whole))) return close();
    if (state == Scan::complete) {
      begun_.reset();
    } else if (!begun_) {
      begun_ = Clock::now();
    }
  }
  flush();
  if (!closed_) await_input();
}

bool Session::serve(std::string_view whole) {
  decode(whole, request_);
  bool good = true;
  if (admitted_) {
    good = host_.service().serve(id_, request_, out_);
  } else {
    admitted_ = good = admit(request_);
  }
  if (request_.keys.capacity() > kKeptCapacity / sizeof(std::string_view)) request_ = Request();
  return good;
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
  if (unsent() == 0 || out_at_ > host_.limits().unsent) {
    out_.erase(0, out_at_);
    out_at_ = 0;
  }
  if (out_.empty() && out_.capacity() > kKeptCapacity) out_ = std::string();
  if (unsent() > 0) await_room();
}

bool Session::overdue(Clock::time_point now) const {
  if (!begun_) return false;
  const SessionLimits& limits = host_.limits();
  const auto bytes_time = std::chrono::milliseconds(reader_.held() * 1000 / limits.slowest);
  return now > *begun_ + limits.grace + bytes_time;
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  asio::error_code ignored;
  socket_.close(ignored);
  host_.closed(id_);
}

}  // namespace hookline::store
