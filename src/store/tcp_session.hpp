// Client sessions of the TCP store server.
#pragma once

#include <array>
#include <asio/ip/tcp.hpp>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include <hookline/core/deadline.hpp>

#include "store/handshake.hpp"
#include "store/request_reader.hpp"
#include "store/service.hpp"
#include "store/tcp_server.hpp"

namespace hookline::store {

class Session;

/// The sessions of a server and their shared state. Used on the server thread only, except await_workers().
class Sessions {
 public:
  /// `name` is the server's name for the log; `token` is empty for the plain protocol.
  Sessions(std::string name, std::string token, const SessionLimits& limits)
      : name_(std::move(name)), token_(std::move(token)), limits_(limits), service_(limits.quota) {}

  /// Returns true if a new connection may be accepted. At max_pending_connections, closes the oldest pending session to
  /// make it possible; returns false if all pending sessions are too new.
  bool can_accept();
  void add_session(asio::ip::tcp::socket socket);
  /// Closes sessions whose handshake or request has exceeded its time limit.
  void close_overdue();
  /// Blocks until `workers` workers have registered or until the deadline. Returns the number of workers. Thread-safe.
  std::int64_t await_workers(std::int64_t workers, Clock::time_point deadline);

 private:
  friend class Session;

  /// Notifies clients whose wait has ended, and threads in await_workers().
  void wake_waiters();
  /// Logs the 1st, 10th, 100th, … rejection of each kind to stderr.
  void log_rejection(RejectReason reason, const std::string& peer);

  const std::string name_;
  const std::string token_;
  const SessionLimits limits_;
  StoreService service_;
  std::array<char, 64 * 1024> buffer_{};  // shared receive buffer, consumed before the next session reads
  std::mutex mutex_;
  std::condition_variable workers_changed_;
  std::int64_t workers_ = 0;
  ClientId next_id_ = 1;
  std::array<std::uint64_t, kNumRejectReasons> rejections_{};
  std::unordered_map<ClientId, std::shared_ptr<Session>> sessions_by_id_;
  std::set<ClientId> pending_;      // sessions not yet admitted, oldest first
  std::size_t admitted_ = 0;        // number of admitted sessions
  std::size_t buffered_bytes_ = 0;  // of unfinished requests and unread replies
};

/// One client connection: its socket, partial request and unsent replies.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::ip::tcp::socket socket, ClientId id, Sessions& sessions);

  void start();
  /// Sends WaitReply::stop_waiting.
  void send_stop_waiting();
  bool overdue(Clock::time_point now) const;
  Clock::time_point opened() const { return opened_; }
  void close();

 private:
  void await_input();
  void await_writable();
  void on_input();
  void on_writable();
  void run_guarded(void (Session::*step)());
  void process_input(std::string_view bytes);
  bool process_handshake(std::string_view& bytes);
  void reject(RejectReason reason);
  void log_rejection(RejectReason reason);
  bool serve(const Request& request);
  bool open_protocol(const Request& request);
  void account_buffered_bytes();
  void flush();
  std::size_t unsent_bytes() const { return output_.size() - output_offset_; }

  asio::ip::tcp::socket socket_;
  ClientId id_;
  Sessions& sessions_;
  std::optional<ServerHandshake> handshake_;  // present until authentication succeeds, if the server has a token
  bool admitted_ = false;
  bool rejected_ = false;  // further input is discarded
  bool closed_ = false;
  bool awaiting_writable_ = false;
  const Clock::time_point opened_ = Clock::now();
  std::size_t buffered_bytes_ = 0;                    // the share of this session in sessions_.buffered_bytes_
  std::optional<Clock::time_point> request_started_;  // start time of the current partial request
  RequestReader reader_;
  std::string unprocessed_;  // received but not parsed until the client reads its replies
  std::string output_;
  std::size_t output_offset_ = 0;
};

}  // namespace hookline::store
