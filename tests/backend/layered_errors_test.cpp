// Errors of subgroups, translated to the ranks of the hierarchical group.
#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "backend/layered/levels.hpp"

namespace hookline::layered {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class E>
std::exception_ptr part_says(const std::string& text, const std::vector<int>& ranks = {}) {
  return in_whole_group(std::make_exception_ptr(E(text, ranks)), {4, 7, 12});
}

template <class E>
auto throws_about(const std::vector<int>& ranks) {
  return ::testing::Throws<E>(::testing::Property(&Error::ranks, ranks));
}

TEST(LayeredErrors, RanksHaveTheNumbersOfTheWhole) {
  const auto error = part_says<Timeout>("barrier on rank 0 of the shm group: rank 1, 2 did not come within 50 ms");
  EXPECT_THAT([&] { std::rethrow_exception(error); },
              ThrowsMessage<Timeout>("barrier on rank 4 of the shm group: rank 7, 12 did not come within 50 ms"));
  EXPECT_THAT([] { std::rethrow_exception(part_says<PeerLost>("Ranks 2 and rank 9, 1 of 3 ranks")); },
              ThrowsMessage<PeerLost>("Ranks 12 and rank 9, 7 of 3 ranks"));
}

TEST(LayeredErrors, RanksAsDataHaveTheNumbersOfTheWhole) {
  EXPECT_THAT([] { std::rethrow_exception(part_says<Timeout>("late", {0, 2})); }, throws_about<Timeout>({4, 12}));
  EXPECT_THAT([] { std::rethrow_exception(part_says<PeerLost>("gone", {9})); }, throws_about<PeerLost>({}));
  const std::string told = told_to_parts(std::make_exception_ptr(Aborted("rank 1 aborted", {1})));
  EXPECT_THAT([&] { std::rethrow_exception(part_says<Aborted>("rank 2 gave up: " + told, {2})); },
              throws_about<Aborted>({1}));
  const std::string lost = told_to_parts(std::make_exception_ptr(PeerLost("two died", {5, 11})));
  EXPECT_THAT([&] { std::rethrow_exception(part_says<Aborted>("rank 0 gave up: " + lost, {0})); },
              throws_about<PeerLost>({5, 11}));
}

TEST(LayeredErrors, WhatTheWholeSaidIsLeftAsItIs) {
  const std::string told =
      told_to_parts(std::make_exception_ptr(Aborted("rank 1 aborted the hierarchical group: why")));
  EXPECT_THAT([&] { std::rethrow_exception(part_says<Aborted>("rank 2 gave up: " + told)); },
              ThrowsMessage<Aborted>("rank 12 gave up: rank 1 aborted the hierarchical group: why"));
}

TEST(LayeredErrors, ALostPeerIsALostPeerEverywhere) {
  const std::string told = told_to_parts(std::make_exception_ptr(PeerLost("rank 1 died")));
  EXPECT_THAT([&] { std::rethrow_exception(part_says<Aborted>("rank 0 gave up: " + told)); },
              ThrowsMessage<PeerLost>("rank 1 died"));
}

}  // namespace
}  // namespace hookline::layered
