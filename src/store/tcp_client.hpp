// TcpClient: a connection to a TCP store server, with deadlines for all I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <hookline/core/deadline.hpp>

#include "core/file_descriptor.hpp"
#include "store/tcp_address.hpp"

namespace hookline::store {

struct ClientOptions {
  std::string token = {};  ///< empty for the plain protocol
  Milliseconds keepalive = std::chrono::seconds(60);
};

/// Not thread-safe. A failure is permanent: replies can no longer be matched to requests, so every later call rethrows
/// the first error.
class TcpClient {
 public:
  /// Connects, authenticates if there is a token, and sends the first requests of the protocol. Retries until the
  /// timeout, then throws Timeout. Throws ResourceError if the tokens differ or only one side has one.
  TcpClient(std::string host, std::uint16_t port, Milliseconds timeout, ClientOptions options);

  /// Sets operation and key for error messages; both must live until the next begin(). Throws if the connection failed
  /// before.
  void begin(const char* operation, std::string_view key);

  void send(std::string_view bytes, Clock::time_point deadline);

  /// Blocks until part of a reply has arrived (returns true) or until the deadline (returns false). Throws PeerLost.
  bool wait_for_reply(Clock::time_point deadline);

  /// Reads a reply. If it does not arrive by the deadline, the connection fails with Timeout.
  template <typename T>
  T read_number(Clock::time_point deadline) {
    T number;
    read(reinterpret_cast<char*>(&number), sizeof(T), deadline);
    return number;
  }
  std::string read_text(Clock::time_point deadline);

  /// Sends cancel_wait. No other reply may be read until confirm_cancel() has returned true.
  void cancel_wait(Clock::time_point deadline);
  /// Reads the confirmation of the last cancel_wait, if pending. Returns false at the deadline. Sets `completed` if the
  /// wait ended before the cancellation.
  bool confirm_cancel(Clock::time_point deadline, bool* completed = nullptr);
  bool cancel_pending() const { return cancel_pending_; }

  static constexpr const char* kUnexpectedReply = "it sent an unexpected reply";

  /// Marks the connection as lost: throws PeerLost now and in every later call.
  [[noreturn]] void throw_connection_lost(const std::string& reason);

 private:
  static constexpr std::size_t kBuffer = 16 * 1024;

  bool connect_once(Clock::time_point deadline, std::string& reason);
  bool connect_to(const SocketAddress& address, Clock::time_point deadline, std::string& reason);
  bool open_protocol(Clock::time_point deadline, std::string& reason);
  void authenticate(Clock::time_point deadline);
  void await_reply(Clock::time_point deadline);
  [[noreturn]] void throw_refused(const std::string& reason) const;
  void read(char* out, std::size_t size, Clock::time_point deadline);
  [[noreturn]] void throw_no_reply();
  /// Returns "TCPStore(host:port).get(\"key\")".
  std::string call_name() const;
  bool receive(char* out, std::size_t size, Clock::time_point deadline, std::size_t& received);
  void set_receive_timeout(Milliseconds timeout);
  [[noreturn]] void fail_with(std::exception_ptr error);
  void close_socket();

  std::string host_;
  std::uint16_t port_;
  std::string endpoint_;  // for messages
  ClientOptions options_;
  const char* operation_ = "connect";
  std::string_view key_;
  core::FileDescriptor socket_;
  std::exception_ptr failure_;
  Milliseconds receive_timeout_{0};
  std::string buffer_;
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  bool cancel_pending_ = false;
};

}  // namespace hookline::store
