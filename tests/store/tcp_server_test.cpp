// Tests for the TCP store server under malformed input: only the offending connection is closed.
#include "store/tcp_server.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include <hookline/store/tcp_store.hpp>

#include "store/raw_client.hpp"
#include "store/wire.hpp"

namespace hookline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string one_text(Query query, std::string_view key) { return RequestBuilder(query).text(key).bytes(); }

class TcpServerTest : public ::testing::Test {
 protected:
  std::uint16_t port() const { return server_.port(); }

  void expect_served() {
    TCPStore store(TCPStoreOptions{.port = port(), .timeout = seconds(20)});
    store.set("k", "v");
    EXPECT_EQ(store.get("k"), "v");
  }

  void expect_refused(const std::string& bytes) {
    const RawClient raw_client(port());
    raw_client.send(bytes);
    EXPECT_TRUE(raw_client.is_closed());
    expect_served();
  }

  TcpServer server_{"127.0.0.1", 0, false, seconds(20)};
};

TEST_F(TcpServerTest, InvalidOpening) {
  expect_refused(std::string("\x00\xce\xf7\x85\x3d", 5));
  expect_refused(one_text(Query::get, "/k"));
  expect_refused("GET / HTTP/1.1\r\n\r\n");
  expect_refused(hello() + hello());
}

TEST_F(TcpServerTest, InvalidRequestsAndNestedWaits) {
  expect_refused(hello() + '\xff');
  const std::string wait = RequestBuilder(Query::wait).keys({"never"}).bytes();
  expect_refused(hello() + wait + wait);
}

TEST_F(TcpServerTest, OversizedReply) {
  TCPStore store(TCPStoreOptions{.port = port(), .timeout = seconds(20)});
  store.set("large", std::string(kMaxValueBytes, 'v'));
  store.ping();  // the value is stored
  expect_refused(hello() + RequestBuilder(Query::multi_get).keys(std::vector<std::string>(10'000, "large")).bytes());
  for (int i = 0; i < 7; ++i) store.append("grown", std::string(kMaxValueBytes, 'v'));
  EXPECT_EQ(store.get("grown").size(), 7 * kMaxValueBytes);
}

TEST_F(TcpServerTest, TruncatedRequest) {
  const std::string whole = hello() + one_text(Query::queue_push, "/q");
  for (std::size_t size = 0; size < whole.size(); ++size)
    RawClient(port()).send(std::string_view(whole).substr(0, size));
  expect_served();
  TCPStore store(TCPStoreOptions{.port = port(), .timeout = seconds(20)});
  EXPECT_EQ(store.queue_len("q"), 0);
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(TcpServerTest, BackpressureStopsServingAClientThatDoesNotRead) {
  TCPStore store(TCPStoreOptions{.port = port(), .timeout = seconds(20)});
  store.set("large", std::string(kMaxValueBytes, 'v'));
  store.ping();
  const std::size_t before = resident_bytes();
  std::string requests = hello();
  for (int i = 0; i < 4000; ++i) requests += one_text(Query::get, "/large");  // 32 GiB of replies
  const RawClient raw_client(port());
  raw_client.send(requests, MSG_DONTWAIT);
  for (int i = 0; i < 100; ++i) store.ping();
  EXPECT_LT(resident_bytes(), before + (std::size_t{256} << 20));

  // Once the client reads, it receives all replies in order.
  std::string small = hello() + RequestBuilder(Query::set).key("some").text(std::string(100'000, 's')).bytes();
  for (int i = 0; i < 100; ++i) small += one_text(Query::get, "/some");
  const RawClient slow(port());
  slow.send(small);
  store.ping();
  for (int i = 0; i < 100; ++i) {
    const std::string reply = slow.receive(8 + 100'000);
    ASSERT_EQ(reply.size(), 8U + 100'000U);
    EXPECT_EQ(reply.back(), 's');
  }
}

TEST_F(TcpServerTest, RandomBytes) {
  std::mt19937 random(20240611);
  TCPStore store(TCPStoreOptions{.port = port(), .timeout = seconds(20)});
  const auto below = [&random](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  for (int round = 0; round < 300; ++round) {
    std::string bytes = below(8) == 0 ? "" : hello();
    // Random queries with small sizes reach more code than random bytes.
    const std::uint32_t parts = below(20);
    for (std::uint32_t i = 0; i < parts; ++i) {
      switch (below(4)) {
        case 0: bytes.push_back(static_cast<char>(below(kNumQueries + 1))); break;
        case 1: append_number<std::uint64_t>(bytes, below(4)); break;
        case 2: append_text(bytes, std::string(below(10), static_cast<char>(below(256)))); break;
        default: append_number<std::uint32_t>(bytes, static_cast<std::uint32_t>(random())); break;
      }
    }
    const RawClient raw_client(port());
    raw_client.send(bytes);
    store.set("still", std::to_string(round));
    ASSERT_EQ(store.get("still"), std::to_string(round));
  }
}

TEST_F(TcpServerTest, EndlessNoise) {
  std::mt19937 random(7);
  std::string noise(1 << 20, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  TCPStore store(TCPStoreOptions{.port = port(), .timeout = seconds(20)});
  for (int i = 0; i < 20; ++i) {
    const RawClient raw_client(port());
    raw_client.send(i % 2 == 0 ? noise : hello() + noise);
    EXPECT_EQ(store.add("n", 1), i + 1);
    EXPECT_TRUE(raw_client.is_closed());
  }
}

TEST(TcpServer, StalledRequestIsDisconnected) {
  const TcpServer server(
      "127.0.0.1", 0, false, seconds(20), {},
      {.handshake_timeout = milliseconds(500), .request_timeout = milliseconds(500), .min_bytes_per_second = 64 << 20});
  const RawClient silent(server.port());
  const RawClient half(server.port());
  half.send(hello() + one_text(Query::set, "/k").substr(0, 5));
  const RawClient almost(server.port());
  std::string large = hello() + one_text(Query::set, "/k");
  append_number<std::uint64_t>(large, kMaxValueBytes);
  large.append(kMaxValueBytes - 1, 'v');
  almost.send(large);
  const RawClient idle(server.port());
  idle.send(hello() + one_text(Query::get, "/k"));
  EXPECT_EQ(idle.receive(8).size(), 8U);

  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(almost.is_closed());
  idle.send(one_text(Query::get, "/k"));  // an idle client between requests has no timeout
  EXPECT_EQ(idle.receive(8).size(), 8U);
}

TEST(TcpServer, LargeRequestsGetMoreTime) {
  const TcpServer server(
      "127.0.0.1", 0, false, seconds(20), {},
      {.handshake_timeout = milliseconds(200), .request_timeout = milliseconds(200), .min_bytes_per_second = 100});
  const RawClient slow(server.port());
  std::string most = hello() + one_text(Query::set, "/k");
  append_number<std::uint64_t>(most, 10'000);
  most.append(9'999, 'v');
  slow.send(most);
  const RawClient silent(server.port());
  EXPECT_TRUE(silent.is_closed()) << "request_timeout has passed";
  slow.send("v" + one_text(Query::get, "/k"));
  EXPECT_EQ(slow.receive(8).size(), 8U);
}

TEST(TcpServer, DestructorDoesNotWaitForClients) {
  auto server = std::make_unique<TcpServer>("127.0.0.1", 0, false, seconds(20));
  const RawClient half(server->port());
  half.send(hello() + one_text(Query::set, "/k"));
  const RawClient waiting(server->port());
  waiting.send(hello() + one_text(Query::barrier, "/b") + std::string("\x02\0\0\0\0\0\0\0", 8));
  server.reset();
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(waiting.is_closed());
}

}  // namespace
}  // namespace hookline::store
