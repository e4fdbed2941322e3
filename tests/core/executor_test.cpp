// Tests for Task and ThreadExecutor.
#include <hookline/core/executor.hpp>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <hookline/core/call_context.hpp>

namespace hookline {
namespace {

TEST(Task, RunsOnceAndReleasesCaptures) {
  auto token = std::make_shared<int>(0);
  Task task = [token, owned = std::make_unique<int>(1)] { *token += *owned; };
  Task moved = std::move(task);
  EXPECT_FALSE(task);
  moved();
  EXPECT_FALSE(moved);
  EXPECT_EQ(*token, 1);
  EXPECT_EQ(token.use_count(), 1) << "a task must release its captures after running";
}

TEST(ThreadExecutor, RunsInOrderOnOneOtherThread) {
  std::vector<int> order;
  std::thread::id where;
  {
    ThreadExecutor executor("test");
    for (int i = 0; i < 1000; ++i) executor.post([&, i] { order.push_back(i); });
    executor.post([&] { where = std::this_thread::get_id(); });
  }
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(ThreadExecutor, TasksMayPostAndMayDropTheExecutor) {
  std::promise<void> done;
  auto executor = std::make_shared<ThreadExecutor>("test");
  Executor* const raw = executor.get();
  raw->post([&done, raw, executor = std::move(executor)]() mutable {
    raw->post([&done] { done.set_value(); });
    executor.reset();  // destroys the executor on its own thread
  });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST(ThreadExecutor, RunNextRunsTheTasksBehindTheCurrentOne) {
  EXPECT_EQ(ThreadExecutor::current(), nullptr);
  std::vector<int> order;
  std::promise<void> posted;
  {
    ThreadExecutor executor("test");
    executor.post([&] {
      posted.get_future().wait();
      const ContextScope scope({.lane = 3});
      ThreadExecutor::run_next(deadline_after(std::chrono::seconds(30)));
      ThreadExecutor::current()->post([&] { order.push_back(4); });
      ThreadExecutor::run_next(deadline_after(std::chrono::seconds(30)));
      order.push_back(3);
    });
    executor.post([&] { order.push_back(1 + current_context().lane); });
    executor.post([&] {
      ThreadExecutor::run_next(Clock::now());
      order.push_back(2);
    });
    posted.set_value();
  }
  EXPECT_EQ(order, (std::vector{1, 4, 2, 3}));
}

TEST(ThreadExecutor, RunNextReturnsAtTheDeadline) {
  ThreadExecutor executor("test");
  std::promise<void> done;
  executor.post([&] {
    ThreadExecutor::run_next(deadline_after(Milliseconds(1)));
    done.set_value();
  });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

}  // namespace
}  // namespace hookline
