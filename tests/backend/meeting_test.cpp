// Ranks that wait for one that does not come.
#include "backend/meeting.hpp"

#include <future>

#include <gmock/gmock.h>

#include <hookline/store/memory_store.hpp>

namespace hookline::backend {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Meeting, EverybodyHearsWhatEverybodySays) {
  MemoryStore store;
  const auto meet_as = [&](int rank) {
    return meet(store, "test", rank, 2, rank == 0 ? "zero" : "", deadline_after(std::chrono::seconds(60)));
  };
  auto other = std::async(std::launch::async, meet_as, 1);
  EXPECT_THAT(meet_as(0), ::testing::ElementsAre("zero", ""));
  EXPECT_THAT(other.get(), ::testing::ElementsAre("zero", ""));
}

TEST(Meeting, TheFirstWhoGivesUpNamesTheMissingRankToAll) {
  MemoryStore store;
  const auto meet_as = [&](int rank, Milliseconds timeout) {
    meet(store, "test", rank, 3, "here", deadline_after(timeout));
  };
  auto patient = std::async(std::launch::async, meet_as, 2, std::chrono::hours(1));
  store.wait({"test/2"});
  EXPECT_THAT([&] { meet_as(0, Milliseconds(20)); }, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not come")));
  EXPECT_THAT([&] { patient.get(); }, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not come")));
}

}  // namespace
}  // namespace hookline::backend
