// One client of the TCP store's server: its socket, its half-sent request, its unsent replies.
#pragma once

#include <asio/ip/tcp.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <hookline/core/deadline.hpp>

#include "store/request_reader.hpp"
#include "store/service.hpp"
#include "store/session_limits.hpp"

namespace hookline::store {

/// What the sessions of a server share. Everything runs on the server's thread.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual Service& service() = 0;
  virtual const SessionLimits& limits() const = 0;
  /// Room for what one session reads; free again when it returns to the event loop.
  virtual std::span<char> read_buffer() = 0;
  /// Requests were served: others may have to be woken.
  virtual void served() = 0;
  /// The session is over; the host lets go of it.
  virtual void closed(ClientId client) = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::ip::tcp::socket socket, ClientId id, SessionHost& host);

  void start();
  /// The client's wait is over.
  void stop_waiting();
  /// Whether the client has been in the middle of a request, or of the opening, for too long.
  bool overdue(Clock::time_point now) const;
  void close();

 private:
  static bool admit(const Request& request);

  void await_input();
  void await_room();
  void on_input();
  void on_room();
  void guarded(void (Session::*step)());
  void take(std::string_view bytes);
  bool serve(std::string_view whole);
  void flush();
  std::size_t unsent() const { return out_.size() - out_at_; }

  asio::ip::tcp::socket socket_;
  ClientId id_;
  SessionHost& host_;
  bool admitted_ = false;
  bool closed_ = false;
  bool awaiting_room_ = false;
  std::optional<Clock::time_point> begun_;  // when the request that is not yet complete began
  RequestReader reader_;
  Request request_;
  std::string unread_;  // received, but not looked at before the client has read its replies
  std::string out_;
  std::size_t out_at_ = 0;
};

}  // namespace hookline::store
