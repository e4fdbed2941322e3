// Tasks hold what cannot be copied; a thread executor runs each once, in order, also those posted before its end.
#include <hookline/core/executor.hpp>

#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace hookline {
namespace {

TEST(Task, RunsOnceAndLetsGo) {
  auto token = std::make_shared<int>(0);
  Task task = [token, owned = std::make_unique<int>(1)] { *token += *owned; };
  Task moved = std::move(task);
  EXPECT_FALSE(task);
  moved();
  EXPECT_FALSE(moved);
  EXPECT_EQ(*token, 1);
  EXPECT_EQ(token.use_count(), 1) << "a task that ran must not keep what it captured";
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
    executor.reset();  // the last reference goes on the executor's own thread
  });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

}  // namespace
}  // namespace hookline
