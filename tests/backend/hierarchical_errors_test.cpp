// Errors of subgroups, translated to the ranks of the hierarchical group.
#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "backend/hierarchical/sub_backends.hpp"

namespace hookline::hierarchical {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class E>
std::exception_ptr subgroup_error(const std::string& text, const std::vector<int>& ranks = {}) {
  return translate_error(std::make_exception_ptr(E(text, ranks)), {4, 7, 12});
}

template <class E>
auto throws_naming(const std::vector<int>& ranks) {
  return ::testing::Throws<E>(::testing::Property(&Error::ranks, ranks));
}

TEST(HierarchicalErrors, MessagesUseGlobalRanks) {
  const auto error = subgroup_error<Timeout>("barrier on rank 0 of the shm group: rank 1, 2 did not join within 50 ms");
  EXPECT_THAT([&] { std::rethrow_exception(error); },
              ThrowsMessage<Timeout>("barrier on rank 4 of the shm group: rank 7, 12 did not join within 50 ms"));
  EXPECT_THAT([] { std::rethrow_exception(subgroup_error<PeerLost>("Ranks 2 and rank 9, 1 of 3 ranks")); },
              ThrowsMessage<PeerLost>("Ranks 12 and rank 9, 7 of 3 ranks"));
}

TEST(HierarchicalErrors, ErrorRanksAreGlobal) {
  EXPECT_THAT([] { std::rethrow_exception(subgroup_error<Timeout>("late", {0, 2})); }, throws_naming<Timeout>({4, 12}));
  EXPECT_THAT([] { std::rethrow_exception(subgroup_error<PeerLost>("gone", {9})); }, throws_naming<PeerLost>({}));
  const std::string message = abort_message(std::make_exception_ptr(Aborted("rank 1 aborted", {1})));
  EXPECT_THAT([&] { std::rethrow_exception(subgroup_error<Aborted>("rank 2 failed: " + message, {2})); },
              throws_naming<Aborted>({1}));
  const std::string lost = abort_message(std::make_exception_ptr(PeerLost("two died", {5, 11})));
  EXPECT_THAT([&] { std::rethrow_exception(subgroup_error<Aborted>("rank 0 failed: " + lost, {0})); },
              throws_naming<PeerLost>({5, 11}));
}

TEST(HierarchicalErrors, GlobalMessagesAreUnchanged) {
  const std::string message =
      abort_message(std::make_exception_ptr(Aborted("rank 1 aborted the hierarchical group: why")));
  EXPECT_THAT([&] { std::rethrow_exception(subgroup_error<Aborted>("rank 2 failed: " + message)); },
              ThrowsMessage<Aborted>("rank 12 failed: rank 1 aborted the hierarchical group: why"));
}

TEST(HierarchicalErrors, PeerLostStaysPeerLost) {
  const std::string message = abort_message(std::make_exception_ptr(PeerLost("rank 1 died")));
  EXPECT_THAT([&] { std::rethrow_exception(subgroup_error<Aborted>("rank 0 failed: " + message)); },
              ThrowsMessage<PeerLost>("rank 1 died"));
}

}  // namespace
}  // namespace hookline::hierarchical
