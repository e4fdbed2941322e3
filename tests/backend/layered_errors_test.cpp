// What the ranks of a part say, in the numbers of the whole group.
#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "backend/layered/levels.hpp"

namespace hookline::layered {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class E>
std::exception_ptr part_says(const std::string& text) {
  return in_whole_group(std::make_exception_ptr(E(text)), {4, 7, 12});
}

TEST(LayeredErrors, RanksHaveTheNumbersOfTheWhole) {
  const auto error = part_says<Timeout>("barrier on rank 0 of the shm group: rank 1, 2 did not come within 50 ms");
  EXPECT_THAT([&] { std::rethrow_exception(error); },
              ThrowsMessage<Timeout>("barrier on rank 4 of the shm group: rank 7, 12 did not come within 50 ms"));
  EXPECT_THAT([] { std::rethrow_exception(part_says<PeerLost>("Ranks 2 and rank 9, 1 of 3 ranks")); },
              ThrowsMessage<PeerLost>("Ranks 12 and rank 9, 7 of 3 ranks"));
}

TEST(LayeredErrors, WhatTheWholeSaidIsLeftAsItIs) {
  const std::string told = told_to_parts(std::make_exception_ptr(Aborted("rank 1 aborted the layered group: why")));
  EXPECT_THAT([&] { std::rethrow_exception(part_says<Aborted>("rank 2 gave up: " + told)); },
              ThrowsMessage<Aborted>("rank 12 gave up: rank 1 aborted the layered group: why"));
}

TEST(LayeredErrors, ALostPeerIsALostPeerEverywhere) {
  const std::string told = told_to_parts(std::make_exception_ptr(PeerLost("rank 1 died")));
  EXPECT_THAT([&] { std::rethrow_exception(part_says<Aborted>("rank 0 gave up: " + told)); },
              ThrowsMessage<PeerLost>("rank 1 died"));
}

}  // namespace
}  // namespace hookline::layered
