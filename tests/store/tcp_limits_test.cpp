// Tests for the limits of the TCP store server: only the client that exceeds one is disconnected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include <hookline/core/error.hpp>
#include <hookline/store/tcp_store.hpp>

#include "store/raw_client.hpp"
#include "store/table.hpp"
#include "store/tcp_server.hpp"
#include "store/waiters.hpp"

namespace hookline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

TCPStoreOptions master_with(const TCPStoreLimits& limits) {
  return {.is_master = true, .timeout = seconds(20), .token = "", .limits = limits};
}

TCPStoreOptions client_of(const TCPStore& master) {
  return {.port = master.port(), .timeout = seconds(20), .token = ""};
}

// Runs a client's writes until it is disconnected; returns the error and the server's log.
template <class Write>
std::string disconnected(TCPStore& master, Write write) {
  TCPStore offender(client_of(master));
  ::testing::internal::CaptureStderr();
  std::string error = "not disconnected";
  try {
    write(offender);
    offender.ping();
  } catch (const PeerLost& lost) {
    error = lost.what();
  }
  master.ping();
  return error + "\n" + ::testing::internal::GetCapturedStderr();
}

TEST(TcpLimits, Keys) {
  TCPStore master(master_with({.max_keys = 3}));
  master.multi_set({"a", "b"}, {"1", "2"});
  master.queue_push("q", "1");
  const auto refused = AllOf(HasSubstr("exceeded a limit"), HasSubstr("max_keys"));
  EXPECT_THAT(disconnected(master, [](TCPStore& store) { store.set("c", "3"); }), refused);
  EXPECT_FALSE(master.check({"c"}));
  EXPECT_EQ(master.queue_pop("q"), "1");
  TCPStore other(client_of(master));
  other.set("c", "3");
  other.set("a", "a new value of a key that is there");
  other.queue_push("r", "");
  EXPECT_THROW(other.ping(), PeerLost);
  EXPECT_EQ(master.get("c"), "3");
  EXPECT_EQ(master.queue_len("r"), 0);
}

TEST(TcpLimits, StoredBytes) {
  TCPStore master(master_with({.max_bytes = 1 << 20}));
  const std::string half((1 << 19) + 1, 'v');
  master.set("a", half);
  const auto refused = AllOf(HasSubstr("exceeded a limit"), HasSubstr("max_bytes"));
  EXPECT_THAT(disconnected(master, [&](TCPStore& store) { store.set("b", half); }), refused);
  EXPECT_THROW(TCPStore(client_of(master)).compare_set("b", "", half), PeerLost);
  for (const auto& write : std::vector<std::function<void(TCPStore&)>>{
           [&](TCPStore& store) { store.append("a", half); },
           [&](TCPStore& store) { store.queue_push("b", half); },
           [&](TCPStore& store) { store.multi_set({"b", "c"}, {"1", half}); },
           [&](TCPStore& store) {
             for (int i = 0; i < 10'000; ++i) store.queue_push("empty", "");
           },
           [&](TCPStore& store) { store.wait(std::vector<std::string>(3000, "never"), seconds(20)); },
       }) {
    TCPStore offender(client_of(master));
    EXPECT_THROW((write(offender), offender.ping()), PeerLost);
  }
  master.set("a", std::string((1 << 19) + 2, 'w'));  // replaces the old value, so it fits
  EXPECT_TRUE(master.delete_key("a"));
}

TEST(TcpLimits, ValueBytes) {
  TCPStore master(master_with({.max_value_bytes = 1000}));
  const std::string large(501, 'v');
  master.append("k", large);
  EXPECT_THAT(disconnected(master, [&](TCPStore& store) { store.append("k", large); }), HasSubstr("max_value_bytes"));
  EXPECT_EQ(master.get("k"), large);
}

TEST(TcpLimits, BufferedBytes) {
  const TcpServer server("127.0.0.1", 0, false, seconds(20), {}, {.quota = {.max_bytes = 1 << 20}});
  std::string half = hello() + RequestBuilder(Query::set).key("k").bytes();
  append_number<std::uint64_t>(half, 1 << 20);
  half.append(600'000, 'v');
  const RawClient first(server.port());
  first.send(half);
  const RawClient second(server.port());
  second.send(half);
  const RawClient* later = &second;
  // The server reads the two in either order and closes the one that exceeds the limit.
  pollfd either[] = {{first.socket(), POLLIN, 0}, {second.socket(), POLLIN, 0}};
  ASSERT_GT(::poll(either, 2, 10'000), 0);
  if (either[0].revents != 0) later = &first;
  EXPECT_TRUE(later->is_closed());
  TCPStore store(TCPStoreOptions{.port = server.port(), .timeout = seconds(20), .token = ""});
  store.set("k", "v");
  EXPECT_EQ(store.get("k"), "v");
}

TEST(TcpLimits, Connections) {
  TCPStore master(master_with({.max_connections = 2}));
  {
    const TCPStore other(client_of(master));
    ::testing::internal::CaptureStderr();
    try {
      const TCPStore third(client_of(master));
      ADD_FAILURE() << "one connection more than the limit";
    } catch (const ResourceError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(master.port())), HasSubstr("max_connections")));
    }
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("max_connections"));
    master.ping();
  }
  // The server may see this connection before it sees that the previous client has disconnected, so retry.
  const auto end = deadline_after(seconds(20));
  for (bool served = false; !served;) {
    try {
      TCPStore(client_of(master)).ping();
      served = true;
    } catch (const ResourceError&) {
      if (Clock::now() > end) throw;
    }
  }
}

TEST(TcpLimits, PendingConnections) {
  const TcpServer server("127.0.0.1", 0, false, seconds(20), {.token = "t"},
                         {.handshake_timeout = seconds(60), .max_pending_connections = 4});
  std::list<RawClient> idle;
  for (int i = 0; i < 40; ++i) idle.emplace_back(server.port());
  TCPStore store(TCPStoreOptions{.port = server.port(), .timeout = seconds(20), .token = "t"});
  store.ping();
  for (int i = 0; i < 40; ++i) idle.emplace_back(server.port());
  TCPStore(TCPStoreOptions{.port = server.port(), .timeout = seconds(20), .token = "t"}).ping();
  store.ping();
  EXPECT_TRUE(idle.front().is_closed());
}

TEST(TcpLimits, InvalidOptions) {
  EXPECT_THROW(TCPStore(master_with({.handshake_timeout = milliseconds(0)})), InvalidArgument);
  EXPECT_THROW(TCPStore(master_with({.keepalive = milliseconds(0)})), InvalidArgument);
}

TEST(TableBytes, ReturnToZeroWhenEmpty) {
  Table table;
  table.set("a", "1");
  table.set("a", "a longer one");
  table.append("a", "!");
  table.append("b", "2");
  table.add("n", 1000);
  table.add("n", -1000);
  table.compare_set("c", "", "3");
  table.queue_push("q", "4");
  table.queue_push("q", "55");
  EXPECT_GT(table.bytes(), 6 * Table::kEntryBytes);
  for (const char* key : {"a", "b", "n", "c"}) table.delete_key(key);
  table.queue_pop("q");
  table.queue_pop("q");
  EXPECT_EQ(table.bytes(), 0U);
}

TEST(WaitersBytes, ReturnToZeroWithoutWaiters) {
  Waiters waiters;
  waiters.wait(1, {"a", "b"});
  waiters.wait(2, {"b"});
  waiters.wait(3, {"c"});
  waiters.arrive_at_barrier(4, "barrier", 2);
  EXPECT_GT(waiters.bytes(), 4 * Waiters::kWaitBytes);
  waiters.on_key_set("a");
  waiters.on_key_set("b");
  waiters.cancel(3);
  waiters.arrive_at_barrier(5, "barrier", 2);
  EXPECT_EQ(waiters.bytes(), 0U);
}

}  // namespace
}  // namespace hookline::store
