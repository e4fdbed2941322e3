// A TCP proxy that counts round trips.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace hookline::testing {

/// Forwards connections to a port of this host. Counts a round trip when the server sends after the client has sent.
class CountingProxy {
 public:
  explicit CountingProxy(std::uint16_t server);
  CountingProxy(const CountingProxy&) = delete;
  CountingProxy& operator=(const CountingProxy&) = delete;
  ~CountingProxy();

  std::uint16_t port() const noexcept { return port_; }
  int round_trips() const noexcept { return round_trips_; }

 private:
  struct Connection {
    int client;
    int server;
    bool request_sent = false;
  };
  void run();
  void accept();
  bool forward(Connection& connection, bool from_client);

  const std::uint16_t server_port_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};
  std::uint16_t port_ = 0;
  std::atomic<int> round_trips_ = 0;
  std::vector<Connection> connections_;
  std::thread thread_;
};

}  // namespace hookline::testing
