// One operation of a TCPStore at its connection: the request, the answer, and waiting that can be called off.
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

/// What the threads that use one TCPStore take turns at.
struct TcpConnection {
  std::mutex mutex;
  std::atomic<std::thread::id> holder;  // of the mutex
  std::unique_ptr<TcpClient> client;
  const std::uint64_t fork_generation = core::fork_generation();  // a forked child must not talk on it
};

class Turn {
 public:
  /// Waits for the connection to be free. `operation` and the key, or the first of the keys, are for messages and live
  /// as long as the turn. InvalidArgument for keys that the protocol does not allow, and where this thread has a turn
  /// already: a wait may run a signal's handler.
  Turn(TcpConnection& connection, const Store& store, const char* operation, std::string_view key,
       Milliseconds timeout);
  Turn(TcpConnection& connection, const Store& store, const char* operation, const std::vector<std::string>& keys,
       Milliseconds timeout);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() { holder_ = std::thread::id(); }

  TcpClient& client() { return *client_; }
  Clock::time_point deadline() const { return started_ + std::clamp(timeout_, Milliseconds(0), kLongestTimeout); }

  void send(const RequestBytes& request);
  template <typename T>
  T answer_number() {
    return client_->read_number<T>(answer_deadline());
  }
  std::string answer_text() { return client_->read_text(answer_deadline()); }

  /// Asks the server to say when all keys are there. At the deadline the wait is cancelled and Timeout thrown, naming
  /// a key that did not come; the connection stays good, also where the server does not answer.
  void wait_for(const std::vector<std::string>& keys);
  /// For a request that was sent and is answered like a wait: false where it was called off at `end`.
  bool await_stop(Clock::time_point end);
  [[noreturn]] void timed_out(std::string_view key) const;
  /// Lets some time pass before the same is asked again, up to the deadline; a connection that ends ends it.
  void pause(Milliseconds time);

  /// Takes a fresh connection in place of one that failed; false where there is none to be had.
  bool reconnect(const std::string& host, std::uint16_t port, Milliseconds timeout, const ClientOptions& options);

 private:
  Clock::time_point answer_deadline() const;
  /// Cancels the wait. Returns true if it was known to be over before the server saw the cancellation.
  bool cancel();
  /// Waits for the confirmation of a cancelled wait that is still missing. Throws Timeout; the connection stays good.
  void skip_cancelled_wait();
  std::string_view first_missing(const std::vector<std::string>& keys);

  std::unique_lock<std::mutex> lock_;
  std::atomic<std::thread::id>& holder_;
  std::unique_ptr<TcpClient>& client_;
  const Store& store_;
  const char* operation_;
  std::string_view key_;
  Clock::time_point started_;
  Milliseconds timeout_;
};

/// InvalidArgument for a value that the protocol does not allow.
void require_value(const Store& store, const std::string& key, const std::string& value);

}  // namespace hookline::store
