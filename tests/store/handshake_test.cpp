// Tests for the TCP store handshake: proofs, errors on both sides and rejected connections.
#include "store/handshake.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include <hookline/core/error.hpp>
#include <hookline/store/tcp_store.hpp>

#include "store/raw_client.hpp"
#include "store/tcp_server.hpp"

namespace hookline::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kReplyBytes = sizeof(HandshakeReply);
constexpr const char* kToken = "8c1f0e5a secret of the job";

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

TCPStoreOptions client_of(std::uint16_t port, const char* token) {
  return {.port = port, .timeout = seconds(20), .token = token};
}

std::string error_of(const TCPStoreOptions& options) {
  try {
    const TCPStore store(options);
  } catch (const ResourceError& error) {
    return error.what();
  }
  return "no error";
}

// Computed once with Python's hmac module.
TEST(Handshake, ProofIsTheHmacOfRoleVersionAndNonces) {
  const std::string client(32, 'c');
  const std::string server(32, 's');
  EXPECT_EQ(make_proof("token", Role::server, client, server),
            from_hex("50c6e310b87663c269adf3b86d48c40b2bc12ee0b6a0bed627f3c5200c4ec2c7"));
  EXPECT_EQ(make_proof("token", Role::client, client, server),
            from_hex("09a1b02e5aed0b146783b701badc541b4f84e14575e72eb2cfcf309d0f3f8b39"));
}

TEST(Handshake, AcceptsPiecesOfAnySize) {
  const ClientHandshake client(kToken);
  for (std::size_t piece = 1; piece <= kHelloBytes; ++piece) {
    ServerHandshake server(kToken);
    std::string reply;
    const auto give = [&](std::string_view bytes) {
      auto state = ServerHandshake::State::incomplete;
      while (!bytes.empty()) {
        std::string_view part = bytes.substr(0, piece);
        bytes.remove_prefix(part.size());
        state = server.consume(part, reply);
      }
      return state;
    };
    EXPECT_EQ(give(client.hello()), ServerHandshake::State::incomplete);
    ASSERT_EQ(reply.size(), kReplyBytes + kChallengeBytes);
    const std::string challenge = reply.substr(kReplyBytes);
    EXPECT_TRUE(client.verify(challenge));
    EXPECT_EQ(give(client.proof(challenge)), ServerHandshake::State::authenticated);
  }
}

class TcpHandshake : public ::testing::Test {
 protected:
  std::uint16_t port() const { return server_.port(); }

  void expect_served() const {
    TCPStore store(client_of(port(), kToken));
    store.set("k", "v");
    EXPECT_EQ(store.get("k"), "v");
  }

  static std::string challenge_for(const RawClient& raw_client, std::string_view hello_bytes) {
    raw_client.send(hello_bytes);
    const std::string reply = raw_client.receive(kReplyBytes + kChallengeBytes);
    EXPECT_EQ(reply.size(), kReplyBytes + kChallengeBytes);
    EXPECT_EQ(number_at<HandshakeReply>(reply, 0), HandshakeReply::challenge);
    return reply.substr(kReplyBytes);
  }

  static void expect_not_served(const RawClient& raw_client) {
    raw_client.send(hello() + RequestBuilder(Query::ping).number<std::uint32_t>(7).bytes());
    EXPECT_EQ(raw_client.receive(4), "");
    EXPECT_TRUE(raw_client.is_closed());
  }

  TcpServer server_{"127.0.0.1", 0, false, seconds(20), {kToken}};
};

TEST_F(TcpHandshake, SameTokenIsServed) {
  expect_served();
  const TCPStore store(client_of(port(), kToken));
  EXPECT_EQ(store.clone()->get("k"), "v");
  EXPECT_THAT(store.describe(), Not(HasSubstr("secret")));
}

TEST_F(TcpHandshake, MissingTokenIsRejectedWithAdvice) {
  ::testing::internal::CaptureStderr();
  const std::string error = error_of(client_of(port(), ""));
  EXPECT_THAT(error, AllOf(HasSubstr("127.0.0.1:" + std::to_string(port())), HasSubstr("requires a token"),
                           HasSubstr("HOOKLINE_TOKEN")));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("rejected a connection from 127.0.0.1:"), HasSubstr("HOOKLINE_TOKEN")));
  EXPECT_THAT(error + log, Not(HasSubstr("secret")));
  expect_served();
}

TEST_F(TcpHandshake, WrongTokenIsRejectedByBothSides) {
  ::testing::internal::CaptureStderr();
  const std::string error = error_of(client_of(port(), "the token of another job"));
  EXPECT_THAT(error, AllOf(HasSubstr("127.0.0.1:" + std::to_string(port())), HasSubstr("token differs"),
                           HasSubstr("HOOKLINE_TOKEN")));
  expect_served();  // afterwards the log contains the rejection
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("its token differs"));
  EXPECT_THAT(error + log, Not(HasSubstr("another job's")));
}

TEST_F(TcpHandshake, LogGrowsLogarithmically) {
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 12; ++i) {
    const RawClient raw_client(port());
    raw_client.send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(raw_client.is_closed());
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(log, HasSubstr("10 so far"));
}

TEST_F(TcpHandshake, NoRequestIsServedBeforeAuthentication) {
  const std::string set = RequestBuilder(Query::set).key("intruder").text("v").bytes();
  for (const std::string& bytes :
       {hello() + set, set, hello() + RequestBuilder(Query::ping).number(kTokenPing).bytes() + set,
        std::string("HEAD / HTTP/1.1\r\n\r\n"),
        ClientHandshake(kToken).hello() + hello() + set + std::string(64, '\0')}) {
    const RawClient raw_client(port());
    raw_client.send(bytes);
    EXPECT_TRUE(raw_client.is_closed());
  }
  TCPStore store(client_of(port(), kToken));
  EXPECT_FALSE(store.check({"intruder"}));
}

TEST_F(TcpHandshake, ReplayedHandshakeIsRejected) {
  const ClientHandshake client(kToken);
  const RawClient first(port());
  const std::string proof = client.proof(challenge_for(first, client.hello()));
  first.send(proof + hello() + RequestBuilder(Query::ping).number<std::uint32_t>(7).bytes());
  EXPECT_EQ(first.receive(4).size(), 4U);

  const RawClient again(port());
  challenge_for(again, client.hello());
  again.send(proof);
  expect_not_served(again);
}

TEST_F(TcpHandshake, ReflectedProofIsRejected) {
  const RawClient raw_client(port());
  const std::string challenge = challenge_for(raw_client, ClientHandshake("unknown").hello());
  raw_client.send(challenge.substr(kNonceBytes));
  expect_not_served(raw_client);

  // Oracle attack: send one connection's challenge as the nonce of another, and its proof back to the first.
  const RawClient one(port());
  const std::string asked = challenge_for(one, ClientHandshake("unknown").hello());
  const RawClient oracle(port());
  std::string hello_bytes = ClientHandshake("unknown").hello();
  hello_bytes.replace(kHelloBytes - kNonceBytes, kNonceBytes, asked.substr(0, kNonceBytes));
  const std::string answer = challenge_for(oracle, hello_bytes);
  one.send(answer.substr(kNonceBytes));
  expect_not_served(one);
}

TEST_F(TcpHandshake, OtherVersionIsRejected) {
  std::string bytes = ClientHandshake(kToken).hello();
  bytes[kHelloBytes - kNonceBytes - 1] = 9;
  const RawClient raw_client(port());
  raw_client.send(bytes);
  EXPECT_EQ(number_at<HandshakeReply>(raw_client.receive(kReplyBytes), 0), HandshakeReply::other_version);
  EXPECT_TRUE(raw_client.is_closed());
}

TEST(TcpServerHandshake, UnfinishedHandshakeTimesOut) {
  const TcpServer server("127.0.0.1", 0, false, seconds(20), {kToken}, {.handshake_timeout = milliseconds(300)});
  const ClientHandshake client(kToken);
  const RawClient silent(server.port());
  const RawClient half(server.port());
  half.send(client.hello().substr(0, 20));
  const RawClient unproven(server.port());
  unproven.send(client.hello());
  const RawClient unopened(server.port());
  unopened.send(client.hello());
  unopened.send(client.proof(unopened.receive(kReplyBytes + kChallengeBytes).substr(kReplyBytes)));
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(unproven.is_closed());
  EXPECT_TRUE(unopened.is_closed());
}

TEST(TcpServerHandshake, UnexpectedTokenIsAnError) {
  const TcpServer server("127.0.0.1", 0, false, seconds(20));
  ::testing::internal::CaptureStderr();
  const std::string error = error_of(client_of(server.port(), kToken));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("it presented a token and this server has none"));
  EXPECT_THAT(error, AllOf(HasSubstr("127.0.0.1:" + std::to_string(server.port())), HasSubstr("the server has none"),
                           HasSubstr("HOOKLINE_TOKEN")));
  TCPStore plain(client_of(server.port(), ""));
  plain.ping();
}

// A program that occupies the store's port without the token.
TEST(TcpServerHandshake, ServerWithoutTheTokenIsRejected) {
  const TcpServer server("127.0.0.1", 0, false, seconds(20), {"a token that the attacker guessed"});
  EXPECT_THAT(error_of(client_of(server.port(), kToken)), HasSubstr("token differs"));
}

TEST(TcpServerHandshake, BeyondLoopbackRequiresAToken) {
  TCPStoreOptions options{.is_master = true,
                          .timeout = seconds(20),
                          .wait_for_workers = false,
                          .listen_on_all_interfaces = true,
                          .token = ""};
  try {
    const TCPStore store(options);
    ADD_FAILURE() << "served without authentication";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("HOOKLINE_TOKEN"), HasSubstr("HOOKLINE_ALLOW_UNAUTHENTICATED")));
  }
  options.allow_unauthenticated = true;
  TCPStore(options).ping();
  options.allow_unauthenticated = false;
  options.token = kToken;
  TCPStore(options).ping();
  options.token = std::nullopt;
  ::setenv("HOOKLINE_ALLOW_UNAUTHENTICATED", "1", 1);
  TCPStore(options).ping();
  ::unsetenv("HOOKLINE_ALLOW_UNAUTHENTICATED");
  ::setenv("HOOKLINE_TOKEN", kToken, 1);
  const TCPStore store(options);
  TCPStore(client_of(store.port(), kToken)).ping();
  ::unsetenv("HOOKLINE_TOKEN");
}

}  // namespace
}  // namespace hookline::store
