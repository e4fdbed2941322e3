// CallbackPool: tasks that wait for each other, and close().
#include "adapter/callback_pool.hpp"

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace hookline::adapter {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

TEST(CallbackPool, RunsTasksThatWaitForOtherTasks) {
  CallbackPool& pool = *new CallbackPool;  // leaked: its threads outlive the test
  constexpr int kDepth = 20;
  std::array<std::promise<void>, kDepth + 1> done;
  for (std::size_t i = 0; i < kDepth; ++i) {
    pool.post([&done, i] {
      if (done[i + 1].get_future().wait_for(10s) == std::future_status::ready) done[i].set_value();
    });
  }
  pool.post([&done] { done[kDepth].set_value(); });
  EXPECT_EQ(done[0].get_future().wait_for(10s), std::future_status::ready);
  pool.close(1s);
}

TEST(CallbackPool, InstanceIsPerProcess) {
  EXPECT_EQ(&CallbackPool::instance(), &CallbackPool::instance());
  const auto done = std::make_shared<std::promise<void>>();
  CallbackPool::instance().post([done] { done->set_value(); });
  EXPECT_EQ(done->get_future().wait_for(10s), std::future_status::ready);
}

TEST(CallbackPool, ForkedChildHasItsOwnPool) {
  const CallbackPool* const before = &CallbackPool::instance();
  const pid_t child = fork();
  if (child == 0) _exit(&CallbackPool::instance() != before ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child uses the parent's pool, which has no threads there";
}

TEST(CallbackPool, CloseDropsPendingTasksAndWaitsForRunningOnes) {
  CallbackPool& pool = *new CallbackPool;
  std::promise<void> begun;
  std::promise<void> may_end;
  std::atomic<bool> ended = false;
  pool.post([&] {
    begun.set_value();
    may_end.get_future().wait();
    ended = true;
  });
  begun.get_future().wait();
  auto closed = std::async(std::launch::async, [&] {
    pool.close(10s);
    EXPECT_TRUE(ended);
  });
  EXPECT_EQ(closed.wait_for(50ms), std::future_status::timeout) << "the task has not ended";
  may_end.set_value();
  closed.get();
  bool ran = false;
  pool.post([&] { ran = true; });
  pool.close(10ms);
  EXPECT_FALSE(ran);
}

TEST(CallbackPool, CloseTimesOut) {
  CallbackPool& pool = *new CallbackPool;
  std::promise<void> begun;
  std::promise<void> free;
  pool.post([&] {
    begun.set_value();
    free.get_future().wait();
  });
  begun.get_future().wait();
  pool.close(20ms);
  free.set_value();
  pool.close(10s);
}

}  // namespace
}  // namespace hookline::adapter
