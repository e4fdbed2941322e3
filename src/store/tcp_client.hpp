// One connection to a TCP store's server: bytes out, bytes in, each with a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <hookline/core/deadline.hpp>

#include "core/descriptor.hpp"
#include "store/tcp_address.hpp"

namespace hookline::store {

struct ClientOptions {
  std::string token = {};  ///< empty for the plain protocol
  Milliseconds keepalive = std::chrono::seconds(60);
};

/// Used by one thread at a time. Once it has failed it stays so: every later call throws the first error again, since
/// nobody knows any more which bytes belong to which request.
class TcpClient {
 public:
  /// Connects and makes itself known, trying again until the timeout while nobody answers. With a token, both sides
  /// first prove that they have the same one; without, this is PyTorch's plain protocol. Throws ResourceError where the
  /// tokens of client and server differ or only one side has one.
  TcpClient(std::string host, std::uint16_t port, Milliseconds timeout, ClientOptions options);

  /// Names what is called from here on, for messages; both live until the next begin. Throws where the connection is
  /// not to be used any more.
  void begin(const char* operation, std::string_view key);

  void send(std::string_view bytes, Clock::time_point deadline);

  /// Whether something of a reply has come before the deadline; a failure only where the connection is lost.
  bool reply_came(Clock::time_point deadline);

  /// What must come before the deadline; where it does not, the connection has failed with a Timeout.
  template <typename T>
  T read_number(Clock::time_point deadline) {
    T number;
    read(reinterpret_cast<char*>(&number), sizeof(T), deadline);
    return number;
  }
  std::string read_text(Clock::time_point deadline);

  /// Sends cancel_wait. Nothing else may be read before confirm_cancel() has returned true.
  void cancel_wait(Clock::time_point deadline);
  /// Reads the confirmation of the last cancel_wait, if one is missing. Returns false at the deadline. Sets `came`
  /// where the wait was over before.
  bool confirm_cancel(Clock::time_point deadline, bool* came = nullptr);
  bool cancel_pending() const { return cancel_pending_; }

  static constexpr const char* kStrangeReply = "it sent a reply that the request does not have";

  /// Gives the connection up: throws PeerLost saying why, now and in every later call.
  [[noreturn]] void lose(const std::string& why);

 private:
  static constexpr std::size_t kBuffer = 16 * 1024;

  bool connect_once(Clock::time_point deadline, std::string& why);
  bool connect_to(const SocketAddress& address, Clock::time_point deadline, std::string& why);
  bool introduce(Clock::time_point deadline, std::string& why);
  void authenticate(Clock::time_point deadline);
  void await_reply(Clock::time_point deadline);
  [[noreturn]] void refused(const std::string& why) const;
  void read(char* out, std::size_t size, Clock::time_point deadline);
  [[noreturn]] void no_answer();
  /// "TCPStore(host:port).get(\"key\")".
  std::string call_name() const;
  bool receive(char* out, std::size_t size, Clock::time_point deadline, std::size_t& got);
  void set_receive_timeout(Milliseconds timeout);
  [[noreturn]] void fail(std::exception_ptr error);
  void close_socket();

  std::string host_;
  std::uint16_t port_;
  std::string endpoint_;  // where the server is, for messages
  ClientOptions options_;
  const char* operation_ = "connect";
  std::string_view key_;
  core::Descriptor socket_;
  std::exception_ptr failure_;
  Milliseconds receive_timeout_{0};
  std::string buffer_;
  std::size_t buffer_at_ = 0;
  std::size_t buffer_end_ = 0;
  bool cancel_pending_ = false;
};

}  // namespace hookline::store
