// The clients of a TCP store's server: each with its socket, its half-sent request and its unsent replies.
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

/// The sessions of a server, and what they share. Everything runs on the server's thread but await_workers.
class Sessions {
 public:
  /// `name` is the server's, for its log; `token` is empty for the plain protocol.
  Sessions(std::string name, std::string token, const SessionLimits& limits)
      : name_(std::move(name)), token_(std::move(token)), limits_(limits), service_(limits.quota) {}

  /// Returns true if one more connection may be opened, closing the oldest of too many that have not opened the
  /// protocol. False where all of those came a moment ago and are given their chance.
  bool make_room();
  void open(asio::ip::tcp::socket socket);
  /// Ends those of clients that have been in the middle of a request, or of the opening, for too long.
  void close_overdue();
  /// Returns when so many workers have made themselves known, or at the deadline; how many have.
  std::int64_t await_workers(std::int64_t workers, Clock::time_point deadline);

 private:
  friend class Session;

  /// Requests were served: others may have to be woken.
  void served();
  /// Writes a line to stderr for the first refusal of a kind, the tenth, the hundredth and so on.
  void log_refusal(Refusal refusal, const std::string& peer);

  const std::string name_;
  const std::string token_;
  const SessionLimits limits_;
  Service service_;
  std::array<char, 64 * 1024> buffer_{};  // one for all: it is empty again before the next session reads
  std::mutex mutex_;
  std::condition_variable workers_came_;
  std::int64_t workers_ = 0;
  ClientId next_id_ = 1;
  std::array<std::uint64_t, kRefusals> refusals_{};
  std::unordered_map<ClientId, std::shared_ptr<Session>> open_;
  std::set<ClientId> opening_;      // those that have not opened the protocol, oldest first
  std::size_t admitted_ = 0;        // those that have
  std::size_t buffered_bytes_ = 0;  // of unfinished requests and unread replies
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(asio::ip::tcp::socket socket, ClientId id, Sessions& all);

  void start();
  /// The client's wait is over.
  void stop_waiting();
  bool overdue(Clock::time_point now) const;
  Clock::time_point opened() const { return opened_; }
  void close();

 private:
  void await_input();
  void await_room();
  void on_input();
  void on_room();
  void guarded(void (Session::*step)());
  void take(std::string_view bytes);
  bool take_handshake(std::string_view& bytes);
  void refuse(Refusal refusal);
  void log_refusal(Refusal refusal);
  bool serve(const Request& request);
  bool open_protocol(const Request& request);
  void account();
  void flush();
  std::size_t unsent() const { return out_.size() - out_at_; }

  asio::ip::tcp::socket socket_;
  ClientId id_;
  Sessions& all_;
  std::optional<ServerHandshake> handshake_;  // with a token, until it has succeeded
  bool admitted_ = false;
  bool refused_ = false;  // and told so; what still comes is thrown away
  bool closed_ = false;
  bool awaiting_room_ = false;
  const Clock::time_point opened_ = Clock::now();
  std::size_t buffered_bytes_ = 0;          // of this session, as far as all_ has counted them
  std::optional<Clock::time_point> begun_;  // when the request that is not yet complete began
  RequestReader reader_;
  std::string unread_;  // received, but not looked at before the client has read its replies
  std::string out_;
  std::size_t out_at_ = 0;
};

}  // namespace hookline::store
