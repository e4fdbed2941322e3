// The server of a TCP store: a thread of its own that keeps the table and answers every client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <hookline/core/deadline.hpp>

#include "store/session_limits.hpp"

namespace hookline::store {

class TcpServer {
 public:
  /// Listens on every address of `host`, or of this machine. Throws ResourceError where that is not to be had.
  TcpServer(const std::string& host, std::uint16_t port, bool all_interfaces, Milliseconds timeout,
            SessionLimits limits = {});
  /// Closes every connection at once, whoever waits on it.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  std::uint16_t port() const { return port_; }
  /// Returns when so many workers have made themselves known, or at the deadline; how many have.
  std::int64_t await_workers(std::int64_t workers, Clock::time_point deadline);

 private:
  class Loop;
  std::uint16_t port_ = 0;
  std::uint64_t fork_generation_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace hookline::store
