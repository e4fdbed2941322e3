// BucketScheduler, the launch queue that all owners on a group share: order, lanes, owners and lifetime.
#include "hook/bucket_scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/backend/threads.hpp>
#include <hookline/group/decorator.hpp>

namespace hookline::hook {
namespace {

using ::testing::ElementsAre;

class Queue : public ::testing::Test {
 protected:
  void enqueue(const char& owner, int lane, int number, bool exclusive = true) {
    scheduler.enqueue({&owner, lane, exclusive, [this, number] { launched.push_back(number); }});
    scheduler.launch();
  }
  void release(const char& owner, int lane) {
    scheduler.release(&owner, lane);
    scheduler.launch();
  }

  BucketScheduler scheduler;
  const char a = 'a', b = 'b';
  std::vector<int> launched;
};

TEST_F(Queue, LaunchesInOrderWhicheverLaneIsFree) {
  enqueue(a, 1, 1);
  enqueue(a, 2, 2);
  enqueue(b, 1, 3);
  enqueue(a, 3, 4);
  enqueue(b, 2, 5);
  EXPECT_THAT(launched, ElementsAre(1, 2));
  release(a, 2);
  EXPECT_THAT(launched, ElementsAre(1, 2));
  release(a, 1);
  EXPECT_THAT(launched, ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(Queue, PlainAllreducesQueueInALaneThatNoHookOccupies) {
  enqueue(a, 1, 1, false);
  enqueue(a, 1, 2, false);
  enqueue(b, 1, 3);
  enqueue(a, 1, 4, false);
  EXPECT_THAT(launched, ElementsAre(1, 2, 3));
  release(b, 1);
  EXPECT_THAT(launched, ElementsAre(1, 2, 3, 4));
}

TEST_F(Queue, OnlyTheOccupantReleasesALane) {
  enqueue(a, 1, 1);
  enqueue(b, 1, 2);
  release(b, 1);
  EXPECT_THAT(launched, ElementsAre(1));
  scheduler.abandon(&a);
  scheduler.launch();
  EXPECT_THAT(launched, ElementsAre(1, 2));
  enqueue(b, 1, 3);
  release(a, 1);  // the hook of the failed owner completes late
  EXPECT_THAT(launched, ElementsAre(1, 2));
}

TEST_F(Queue, AStartMayReleaseAndEnqueue) {
  scheduler.enqueue({&a, 1, true, [this] {
                       launched.push_back(1);
                       scheduler.release(&a, 1);
                       enqueue(a, 1, 3);
                     }});
  enqueue(b, 1, 2);
  EXPECT_THAT(launched, ElementsAre(1, 2));
  release(b, 1);
  EXPECT_THAT(launched, ElementsAre(1, 2, 3));
}

class Wrapper final : public GroupDecorator {
  using GroupDecorator::GroupDecorator;
};

TEST(BucketScheduler, IsSharedByTheWrappersOfAGroupAndOwnsNoGroup) {
  auto backends = make_threads_backends(2);
  auto group = make_group(backends[0]);
  const auto other = make_group(backends[1]);
  auto wrapper = std::make_shared<Wrapper>(std::make_shared<Wrapper>(group));
  const auto scheduler = BucketScheduler::of(*group);
  EXPECT_EQ(BucketScheduler::of(*wrapper), scheduler);
  EXPECT_EQ(BucketScheduler::of(Wrapper(group)), scheduler);
  EXPECT_NE(BucketScheduler::of(*other), scheduler);
  const std::weak_ptr<ProcessGroup> observer = group;
  group.reset();
  wrapper.reset();
  EXPECT_TRUE(observer.expired());
}

}  // namespace
}  // namespace hookline::hook
