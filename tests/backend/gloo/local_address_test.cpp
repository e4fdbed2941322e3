// The address that the gloo transport listens on.
#include "backend/gloo/local_address.hpp"

#include <cstdlib>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

namespace hookline::gloo_transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LocalAddress, FromOptions) {
  EXPECT_EQ(local_address({{"interface", "lo"}}, ""), "127.0.0.1");
  EXPECT_EQ(local_address({{"address", "127.0.0.1"}}, "192.0.2.1"), "127.0.0.1");
  EXPECT_THAT(local_address({{"address", "localhost"}}, ""), ::testing::AnyOf("127.0.0.1", "::1"));
}

TEST(LocalAddress, FromEnvironment) {
  setenv("GLOO_SOCKET_IFNAME", "lo,other", 1);
  EXPECT_EQ(local_address({}, "192.0.2.1"), "127.0.0.1");
  setenv("GLOO_SOCKET_IFNAME", "no_such0", 1);
  EXPECT_THAT([] { local_address({}, ""); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("no_such0"), HasSubstr("GLOO_SOCKET_IFNAME"))));
  unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(LocalAddress, RoutesToTheMaster) {
  EXPECT_EQ(local_address({}, "127.0.0.1"), "127.0.0.1");
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  EXPECT_EQ(local_address({}, ""), "127.0.0.1");
  unsetenv("MASTER_ADDR");
  EXPECT_NE(local_address({}, ""), "");
}

TEST(LocalAddress, UnknownInterfaceOrAddressIsNamed) {
  EXPECT_THAT([] { local_address({{"interface", "no_such0"}}, ""); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("no_such0"), HasSubstr("lo"))));
  EXPECT_THAT([] { local_address({{"address", "192.0.2.1"}}, ""); },
              ThrowsMessage<InvalidArgument>(HasSubstr("192.0.2.1")));
  EXPECT_THAT([] { local_address({{"address", "no such host"}}, ""); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no such host")));
  EXPECT_THAT([] { local_address({{"colour", "red"}}, ""); }, ThrowsMessage<InvalidArgument>(HasSubstr("colour")));
}

TEST(LocalAddress, LoopbackIsKeptIfAllRanksUseLoopback) {
  EXPECT_EQ(reachable_address("127.0.0.1", {"127.0.0.1", "127.0.1.1", "::1"}), "127.0.0.1");
  EXPECT_EQ(reachable_address("192.0.2.1", {"127.0.0.1", "198.51.100.1"}), "192.0.2.1");
  EXPECT_EQ(reachable_address("127.0.0.1", {"127.0.0.1", "", "no.address", "1.2.3.4.5"}), "127.0.0.1");
}

TEST(LocalAddress, DetectsExplicitAddress) {
  EXPECT_FALSE(has_explicit_address({}));
  EXPECT_TRUE(has_explicit_address({{"address", "127.0.0.1"}}));
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  EXPECT_TRUE(has_explicit_address({}));
  unsetenv("GLOO_SOCKET_IFNAME");
}

}  // namespace
}  // namespace hookline::gloo_transport
