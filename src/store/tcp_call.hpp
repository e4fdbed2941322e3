// TcpCall: one operation of a TCPStore on its shared connection.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <hookline/store/store.hpp>

#include "core/fork.hpp"
#include "store/tcp_client.hpp"
#include "store/wire.hpp"

namespace hookline::store {

/// The connection that all threads of a TCPStore share.
struct TcpConnection {
  std::mutex mutex;
  std::atomic<std::thread::id> owner;  // the thread that holds the mutex
  std::unique_ptr<TcpClient> client;
  const std::uint64_t fork_generation = core::fork_generation();  // a forked child must not use it
};

/// Holds the connection for the duration of one operation.
class TcpCall {
 public:
  /// Blocks until the connection is free. `operation` and `key` (or the first key) are used in messages and must
  /// outlive the object. Throws InvalidArgument for keys that the protocol does not allow, and if this thread already
  /// holds the connection, which happens in signal handlers.
  TcpCall(TcpConnection& connection, const Store& store, const char* operation, std::string_view key,
          Milliseconds timeout);
  TcpCall(TcpConnection& connection, const Store& store, const char* operation, const std::vector<std::string>& keys,
          Milliseconds timeout);
  TcpCall(const TcpCall&) = delete;
  TcpCall& operator=(const TcpCall&) = delete;
  ~TcpCall() { owner_ = std::thread::id(); }

  TcpClient& client() { return *client_; }
  Clock::time_point deadline() const { return started_ + std::clamp(timeout_, Milliseconds(0), kMaxTimeout); }

  void send(const RequestBuilder& request);
  template <typename T>
  T read_number() {
    return client_->read_number<T>(reply_deadline());
  }
  std::string read_text() { return client_->read_text(reply_deadline()); }

  /// Waits until all keys are set. At the deadline cancels the wait and throws Timeout naming a missing key. The
  /// connection stays usable, even if the server does not reply.
  void wait_for(const std::vector<std::string>& keys);
  /// Waits for the reply of a wait or barrier request. Returns false if it was cancelled at `end`.
  bool wait_until_woken(Clock::time_point end);
  [[noreturn]] void throw_timed_out(std::string_view key) const;
  /// Sleeps before a retry, at most until the deadline. Throws PeerLost if the connection ends.
  void pause(Milliseconds time);

  /// Replaces a failed connection. Returns false if the server cannot be reached.
  bool reconnect(const std::string& host, std::uint16_t port, Milliseconds timeout, const ClientOptions& options);

 private:
  Clock::time_point reply_deadline() const;
  /// Cancels the wait. Returns true if the wait is known to have ended before the cancellation.
  bool cancel_wait();
  /// Awaits the pending confirmation of an earlier cancelled wait. Throws Timeout; the connection stays usable.
  void skip_cancelled_wait();
  std::string_view first_missing(const std::vector<std::string>& keys);

  std::unique_lock<std::mutex> lock_;
  std::atomic<std::thread::id>& owner_;
  std::unique_ptr<TcpClient>& client_;
  const Store& store_;
  const char* operation_;
  std::string_view key_;
  Clock::time_point started_;
  Milliseconds timeout_;
};

/// Throws InvalidArgument for a value that is too large for the protocol.
void require_value(const Store& store, const std::string& key, const std::string& value);

}  // namespace hookline::store
