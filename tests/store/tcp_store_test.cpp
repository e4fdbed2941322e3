// Tests for TCPStore: store contract, connecting, errors and the end of either side.
#include <hookline/store/tcp_store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <future>
#include <limits>
#include <thread>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/store/prefix_store.hpp>

#include "contract/store_contract.hpp"
#include "core/file_descriptor.hpp"
#include "harness/counting_proxy.hpp"
#include "store/tcp_listen.hpp"

namespace hookline::contract {
namespace {

std::shared_ptr<Store> on_a_server() {
  return std::make_shared<TCPStore>(TCPStoreOptions{.is_master = true, .timeout = std::chrono::seconds(20)});
}

std::shared_ptr<Store> another_client(const std::shared_ptr<Store>& store) {
  return static_cast<const TCPStore&>(*store).clone();
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Tcp, StoreContract, ::testing::Values(StoreFactory{on_a_server, another_client}));

INSTANTIATE_TEST_SUITE_P(TcpPrefix, StoreContract,
                         ::testing::Values(StoreFactory{
                             [] { return std::make_shared<PrefixStore>("p", on_a_server()); },
                             [](const std::shared_ptr<Store>& store) {
                               const auto inner = static_cast<const PrefixStore&>(*store).underlying_store();
                               return std::make_shared<PrefixStore>("p", another_client(inner));
                             },
                         }));

}  // namespace hookline::contract

namespace hookline {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

std::shared_ptr<TCPStore> master(Milliseconds timeout = seconds(20)) {
  return std::make_shared<TCPStore>(TCPStoreOptions{.is_master = true, .timeout = timeout});
}

std::shared_ptr<TCPStore> client_of(const TCPStore& server, Milliseconds timeout = seconds(20)) {
  return std::make_shared<TCPStore>(TCPStoreOptions{.port = server.port(), .timeout = timeout});
}

template <typename E, typename F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "the expected error was not thrown";
  return "";
}

TEST(TcpStore, PicksAFreePort) {
  const auto server = master();
  EXPECT_NE(server->port(), 0);
  EXPECT_EQ(server->host(), "127.0.0.1");
  EXPECT_EQ(PrefixStore("p", server).host(), "127.0.0.1");
  EXPECT_EQ(server->describe(), "TCPStore(127.0.0.1:" + std::to_string(server->port()) + ")");
  client_of(*server)->ping();
}

TEST(TcpStore, MasterWaitsForWorkers) {
  auto server = std::async(std::launch::async, [] {
    return std::make_shared<TCPStore>(TCPStoreOptions{.world_size = 1, .is_master = true, .timeout = seconds(20)});
  });
  EXPECT_EQ(server.get()->num_keys(), 1);  // PyTorch counts its own key too

  const std::string text = message_of<Timeout>(
      [] { TCPStore store(TCPStoreOptions{.world_size = 3, .is_master = true, .timeout = milliseconds(50)}); });
  EXPECT_THAT(text, HasSubstr("Timed out after 1 seconds waiting for clients. 1/3 clients joined."));
}

TEST(TcpStore, ClientMayStartBeforeTheServer) {
  std::uint16_t port = 0;
  {
    port = master()->port();
  }
  auto early = std::async(std::launch::async, [port] {
    TCPStore store(TCPStoreOptions{.port = port, .timeout = seconds(20)});
    return store.get("late");
  });
  EXPECT_EQ(early.wait_for(milliseconds(30)), std::future_status::timeout);
  TCPStore server(TCPStoreOptions{.port = port, .is_master = true, .timeout = seconds(20)});
  server.set("late", "came");
  EXPECT_EQ(early.get(), "came");
}

TEST(TcpStore, AddressErrorsNameTheProblem) {
  const auto server = master();
  const std::string port = std::to_string(server->port());
  EXPECT_THAT(
      message_of<ResourceError>([&] { TCPStore second(TCPStoreOptions{.port = server->port(), .is_master = true}); }),
      HasSubstr("another program uses this port"));
  EXPECT_THAT(
      message_of<ResourceError>([] {
        TCPStore store(TCPStoreOptions{.host = "no.such.host.invalid", .port = 1, .timeout = milliseconds(300)});
      }),
      HasSubstr("no.such.host.invalid"));
  EXPECT_THAT(message_of<ResourceError>([] {
                TCPStore store(TCPStoreOptions{.host = "192.0.2.1", .is_master = true});  // reserved for documentation
              }),
              HasSubstr("listen on all interfaces"));
  std::uint16_t free_port = 0;
  {
    free_port = master()->port();
  }
  EXPECT_THAT(
      message_of<Timeout>([&] { TCPStore store(TCPStoreOptions{.port = free_port, .timeout = milliseconds(80)}); }),
      HasSubstr("The client socket has timed out after 80ms while trying to connect to (127.0.0.1, "));
  EXPECT_THROW(TCPStore(TCPStoreOptions{.port = 0}), InvalidArgument);
  EXPECT_THROW(TCPStore(TCPStoreOptions{.host = "", .is_master = true}), InvalidArgument);
  for (const int size : {0, -1, kMaxWorldSize + 1, std::numeric_limits<int>::max()}) {
    EXPECT_THROW(TCPStore(TCPStoreOptions{.world_size = size, .is_master = true}), InvalidArgument) << size;
  }
}

TEST(TcpStore, ListensOnTheNamedHostOnly) {
  const auto named = master();
  EXPECT_THROW(TCPStore(TCPStoreOptions{.host = "127.0.0.2", .port = named->port(), .timeout = milliseconds(50)}),
               Timeout);
  const TCPStore all(
      TCPStoreOptions{.is_master = true, .timeout = seconds(20), .listen_on_all_interfaces = true, .token = "t"});
  TCPStore(TCPStoreOptions{.host = "127.0.0.2", .port = all.port(), .timeout = seconds(20), .token = "t"}).ping();
}

TEST(TcpStore, PoppingAnEmptyQueueBesideAValueDoesNotSpin) {
  const auto server = master();
  const auto client = client_of(*server);
  server->set("k", "a value, not in the queue");
  client->set_timeout(milliseconds(400));
  const std::clock_t before = std::clock();
  EXPECT_THROW(client->queue_pop("k"), Timeout);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 5) << "CPU time used in 0.4 s";
  client->set_timeout(seconds(30));
  std::thread pusher([&] { server->queue_push("k", "x"); });
  EXPECT_EQ(client->queue_pop("k"), "x");
  pusher.join();
}

// A push wakes one waiting client, which may not be the one that pops.
TEST(TcpStore, PopFindsAnElementAnnouncedToAnotherClient) {
  const auto server = master();
  static std::atomic<int> waiting = 0;
  const auto start_waiting = [](auto call) {
    return std::async(std::launch::async, [call] {
      const InterruptScope scope([] {
        thread_local bool counted = false;
        if (!std::exchange(counted, true)) ++waiting;
        waiting.notify_one();
      });
      return call();
    });
  };
  auto waits = start_waiting([store = client_of(*server)] { return store->wait({"q"}, seconds(20)); });
  waiting.wait(0);
  auto pops = start_waiting([store = client_of(*server)] { return store->queue_pop("q"); });
  waiting.wait(1);
  server->queue_push("q", "x");
  waits.get();
  EXPECT_EQ(pops.get(), "x");
}

TEST(TcpStore, CancelledWaitKeepsTheConnection) {
  const auto server = master();
  const auto client = client_of(*server);
  const std::string text = message_of<Timeout>([&] { client->wait({"never"}, milliseconds(30)); });
  EXPECT_THAT(text, HasSubstr("never"));
  EXPECT_THAT(text, HasSubstr(server->describe()));
  EXPECT_THAT(text, HasSubstr("30ms"));
  client->set_timeout(milliseconds(30));
  EXPECT_THROW(client->get("never"), Timeout);
  EXPECT_THROW(client->queue_pop("never"), Timeout);
  EXPECT_THROW(client->multi_get({"never", "ever"}), Timeout);
  EXPECT_THROW(client->barrier("b", 2, milliseconds(30)), Timeout);
  server->set("never", "now");  // must not wake the cancelled wait
  EXPECT_EQ(client->get("never"), "now");
  EXPECT_EQ(client->num_keys(), 1);
}

// A signal handler runs in the waiting thread, which holds the connection.
TEST(TcpStore, SignalHandlerMustUseAClone) {
  static std::shared_ptr<TCPStore> waiting;
  static std::shared_ptr<Store> other;
  waiting = master();
  other = waiting->clone();
  {
    const InterruptScope scope([] {
      other->set("k", "of the clone");
      waiting->set("k", "of the same");
    });
    EXPECT_THAT(message_of<InvalidArgument>([] { waiting->wait({"never"}, seconds(20)); }), HasSubstr("clone()"));
  }
  EXPECT_EQ(waiting->get("k"), "of the clone");
  other.reset();
  waiting.reset();
}

TEST(TcpStore, ServerExitIsPeerLostForAllClients) {
  auto server = master();
  const std::string endpoint = "127.0.0.1:" + std::to_string(server->port());
  const auto idle = client_of(*server);
  const auto waiting = client_of(*server);
  auto waits = std::async(std::launch::async, [&] { waiting->wait({"never"}, seconds(60)); });
  EXPECT_EQ(waits.wait_for(milliseconds(20)), std::future_status::timeout);
  server.reset();
  EXPECT_THAT(message_of<PeerLost>([&] { waits.get(); }), HasSubstr(endpoint));
  const std::string first = message_of<PeerLost>([&] { idle->get("k"); });
  EXPECT_THAT(first, HasSubstr(endpoint));
  EXPECT_EQ(message_of<PeerLost>([&] { idle->set("k", "v"); }), first);
}

// A server that replies to the ping of a new client and then sends only the bytes that the test passes to send().
class SilentServer {
 public:
  SilentServer() : listeners_(store::listen_on("127.0.0.1", 0, false, deadline_after(seconds(5)))) {
    accepting_ = std::thread([this] {
      client_ = core::FileDescriptor(::accept(listeners_.front().socket.get(), nullptr, nullptr));
      std::array<char, 10> opening{};
      EXPECT_EQ(::recv(client_.get(), opening.data(), opening.size(), MSG_WAITALL), 10);
      send(std::string_view(opening.data() + 6, 4));
    });
  }
  ~SilentServer() {
    if (accepting_.joinable()) accepting_.join();
  }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;

  TCPStoreOptions options(milliseconds timeout) const { return {.port = listeners_.front().port, .timeout = timeout}; }
  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(client_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void await_opening() { accepting_.join(); }

 private:
  std::vector<store::Listener> listeners_;
  core::FileDescriptor client_;
  std::thread accepting_;
};

TEST(TcpStore, UnresponsiveServerIsATimeout) {
  SilentServer server;
  TCPStore store(server.options(seconds(20)));
  server.await_opening();
  store.set_timeout(milliseconds(100));
  const auto start = Clock::now();
  EXPECT_THROW(store.get("k"), Timeout);
  EXPECT_LT(Clock::now() - start, seconds(15));
  EXPECT_THROW(store.ping(), Timeout) << "later replies cannot be matched to requests";
}

TEST(TcpStore, UnconfirmedCancelKeepsTheConnection) {
  SilentServer server;
  TCPStore store(server.options(seconds(20)));
  server.await_opening();
  const auto start = Clock::now();
  EXPECT_THROW(store.wait({"a", "b"}, milliseconds(50)), Timeout);
  EXPECT_THROW(store.wait({"a"}, milliseconds(50)), Timeout);
  store.set_timeout(milliseconds(50));
  EXPECT_THROW(store.ping(), Timeout);
  EXPECT_LT(Clock::now() - start, seconds(15));
  store.set_timeout(seconds(20));
  // stop_waiting of a wait that ended before its cancellation, the confirmation of the cancellation, a ping reply.
  server.send(std::string_view("\x00\x01gnip", 6));
  store.ping();
}

TEST(TcpStore, DisconnectedWaiterIsRemoved) {
  const auto server = master();
  for (int i = 0; i < 3; ++i) {
    const auto client = client_of(*server, milliseconds(5));
    EXPECT_THROW(client->barrier("b", 2, milliseconds(5)), Timeout);
  }
  const auto a = client_of(*server);
  auto first = std::async(std::launch::async, [&] { a->barrier("b", 2, seconds(20)); });
  EXPECT_EQ(first.wait_for(milliseconds(20)), std::future_status::timeout);  // disconnected clients do not count
  server->barrier("b", 2, seconds(20));
  first.get();
}

TEST(TcpStore, OversizedArgumentsAreInvalid) {
  const auto server = master();
  EXPECT_THROW(server->set(std::string(8192, 'k'), ""), InvalidArgument);
  EXPECT_THROW(server->set("k", std::string((8 << 20) + 1, 'v')), InvalidArgument);
  EXPECT_THROW(server->check(std::vector<std::string>(128 * 1024 + 1, "k")), InvalidArgument);
  EXPECT_THROW(
      server->multi_set(std::vector<std::string>(9, "k"), std::vector<std::string>(9, std::string(8 << 20, 'v'))),
      InvalidArgument);
  server->set(std::string(8191, 'k'), "longest");
  EXPECT_EQ(server->get(std::string(8191, 'k')), "longest");
}

// Sizes around the internal buffer limits of 16 KiB to 1 MiB.
TEST(TcpStore, ValuesOfEverySizeRoundTrip) {
  const auto server = master();
  const auto client = client_of(*server);
  for (std::size_t size = 1; size <= std::size_t{4} << 20; size *= 2) {
    for (const std::size_t each : {size - 1, size, size + 1, size + size / 2}) {
      const std::string value(each, static_cast<char>('a' + each % 26));
      client->set("k", value);
      ASSERT_EQ(client->get("k"), value) << each;
      ASSERT_EQ(client->multi_get({"k", "k", "k"}), std::vector<std::string>(3, value)) << each;
    }
  }
}

TEST(TcpStore, HoldsAThousandIdleClients) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, 4096));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto server = master();
  std::vector<std::shared_ptr<TCPStore>> clients;
  for (int i = 0; i < 1000; ++i) clients.push_back(client_of(*server));
  for (int i = 0; i < 1000; ++i) clients[static_cast<std::size_t>(i)]->add("n", 1);
  EXPECT_EQ(server->get("n"), "1000");
}

TEST(TcpStore, ForkedChildIsRejected) {
  const auto server = master();
  static std::atomic<bool> waits = false;
  std::thread waiting([&] {  // holds the connection; does not exist in the child
    const InterruptScope scope([] {
      waits = true;
      waits.notify_one();
    });
    server->wait({"forked"}, seconds(60));
  });
  waits.wait(false);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int code = 1;
    ::alarm(20);
    try {
      server->get("k");
    } catch (const InvalidArgument&) {
      code = 0;
    }
    const_cast<std::shared_ptr<TCPStore>&>(server).reset();  // must not hang or affect the parent's server
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  client_of(*server)->set("forked", "");
  waiting.join();
  EXPECT_EQ(status, 0);
  server->set("k", "still here");
  EXPECT_EQ(client_of(*server)->get("k"), "still here");
}

TEST(TcpStore, ForkedChildDoesNotShareTheParentsServer) {
  TCPStoreOptions options{.is_master = true, .timeout = seconds(20), .multi_tenant = true};
  TCPStore first(options);
  options.port = first.port();
  TCPStore(options).set("k", "of a tenant");
  EXPECT_EQ(first.get("k"), "of a tenant");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int code = 1;
    ::alarm(20);
    try {
      const TCPStore own(options);
    } catch (const ResourceError&) {  // the parent occupies the port
      code = 0;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(TcpStore, ManyClientsAtOnce) {
  const auto server = master();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&server, t] {
      const auto store = client_of(*server);
      const std::string mine = "k" + std::to_string(t);
      for (int i = 0; i < 50; ++i) {
        store->set(mine + "/" + std::to_string(i), std::to_string(i));
        store->get("k" + std::to_string((t + 1) % 4) + "/" + std::to_string(i));
        store->queue_push("q", mine);
        store->queue_pop("q");
        store->add("n", 1);
        store->barrier("all", 4, seconds(20));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server->get("n"), "200");
  EXPECT_EQ(server->queue_len("q"), 0);
}

TEST(TcpStore, ManyKeysTakeOneRoundTrip) {
  const TCPStore server(TCPStoreOptions{.is_master = true});
  const testing::CountingProxy proxy(server.port());
  TCPStore store(TCPStoreOptions{.port = proxy.port()});
  std::vector<std::string> keys, values;
  for (int i = 0; i < 100; ++i) {
    keys.push_back("k" + std::to_string(i));
    values.push_back("v" + std::to_string(i));
  }
  const int before = proxy.round_trips();
  store.multi_set(keys, values);  // has no reply; the reply to the next request follows it
  EXPECT_EQ(store.multi_get(keys), values);
  EXPECT_EQ(proxy.round_trips() - before, 1);
}

}  // namespace
}  // namespace hookline
