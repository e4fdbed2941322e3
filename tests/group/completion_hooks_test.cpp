// Tests completion hooks: their arguments, order, threads and exceptions.
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/core/interrupt.hpp>

#include "group/rank_threads.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;

/// Starts one allreduce on both ranks and waits for it.
void run_allreduce_on_both(const testing::Groups& groups) {
  Tensor a = Tensor::full({4}, 1);
  Tensor b = Tensor::full({4}, 2);
  const auto first = groups[0]->allreduce(a);
  const auto second = groups[1]->allreduce(b);
  first->wait(10s);
  second->wait(10s);
}

TEST(CompletionHooks, ReportsEveryOperationInOrder) {
  const auto groups = testing::make_thread_groups(2);
  std::vector<WorkInfo> seen;
  groups[0]->register_on_completion_hook([&](const WorkInfo& info) { seen.push_back(info); });
  const auto begin = Clock::now();
  for (int i = 0; i < 5; ++i) run_allreduce_on_both(groups);
  {
    const ContextScope lane({.lane = 3});
    Operation c;
    c.type = OpType::barrier;
    c.op_tag = 7;
    const auto first = groups[0]->run(c);
    const auto second = groups[1]->run(c);
    first->wait(10s);
    second->wait(10s);
  }
  ASSERT_EQ(seen.size(), 6u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(seen[i].op_type, OpType::allreduce);
    EXPECT_EQ(seen[i].seq, i + 1);
    EXPECT_EQ(seen[i].bytes, 16u);
    EXPECT_LE(begin, seen[i].time_started);
    EXPECT_LE(seen[i].time_started, seen[i].time_finished);
    EXPECT_LE(seen[i].active_duration, seen[i].time_finished - seen[i].time_started);
    EXPECT_EQ(seen[i].error, nullptr);
  }
  EXPECT_EQ(seen[5].op_type, OpType::barrier);
  EXPECT_EQ(seen[5].lane, 3);
  EXPECT_EQ(seen[5].bucket, 7u);
  EXPECT_EQ(seen[5].bytes, 0u);
}

TEST(CompletionHooks, ActiveDurationStartsAfterPreviousOperation) {
  const auto groups = testing::make_thread_groups(2);
  std::vector<WorkInfo> seen;
  groups[0]->register_on_completion_hook([&](const WorkInfo& info) { seen.push_back(info); });
  std::vector<WorkPtr> works;
  std::vector<Tensor> tensors(4, Tensor());
  for (int i = 0; i < 2; ++i)
    works.push_back(groups[0]->allreduce(tensors[static_cast<std::size_t>(i)] = Tensor::full({8}, 1)));
  for (int i = 2; i < 4; ++i)
    works.push_back(groups[1]->allreduce(tensors[static_cast<std::size_t>(i)] = Tensor::full({8}, 1)));
  for (const auto& work : works) work->wait(10s);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].active_duration, seen[1].time_finished - std::max(seen[0].time_finished, seen[1].time_started));
}

TEST(CompletionHooks, ThrowingHookFailsWait) {
  const auto groups = testing::make_thread_groups(2);
  groups[0]->register_on_completion_hook([&](const WorkInfo& info) {
    if (info.seq == 2) throw Mismatch("the second one");
  });
  run_allreduce_on_both(groups);
  EXPECT_THROW(run_allreduce_on_both(groups), Mismatch);
  groups[0]->wait_for_hooks(10s);  // the error was thrown by wait()
  Tensor a = Tensor::full({4}, 1);
  Tensor b = Tensor::full({4}, 2);
  const auto other = groups[1]->allreduce(a);
  groups[0]->allreduce(b)->wait(10s);
  other->wait(10s);
}

TEST(CompletionHooks, WaitForHooksThrowsErrorOfUnawaitedWork) {
  const auto groups = testing::make_thread_groups(2);
  int calls = 0;
  groups[0]->register_on_completion_hook([&](const WorkInfo&) {
    ++calls;
    throw Timeout("hook");
  });
  Tensor a = Tensor::full({4}, 1);
  Tensor b = Tensor::full({4}, 2);
  (void)groups[0]->allreduce(a);
  const auto other = groups[1]->allreduce(b);
  EXPECT_THROW(groups[0]->wait_for_hooks(10s), Timeout);
  EXPECT_EQ(calls, 1);
  groups[0]->wait_for_hooks(10s);
  other->wait(10s);
}

// Each error is thrown once: by wait() of its operation, or else by wait_for_hooks().
TEST(CompletionHooks, WaitForHooksThrowsOnlyUnreportedErrors) {
  for (const bool all : {false, true}) {
    const auto groups = testing::make_thread_groups(2);
    groups[0]->register_on_completion_hook([](const WorkInfo& info) { throw Error(std::to_string(info.seq)); });
    std::vector<Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 6; ++i) {
      tensors.push_back(Tensor::full({4}, 1));
      works.push_back(groups[static_cast<std::size_t>(i / 3)]->allreduce(tensors.back()));
    }
    for (std::size_t i = 3; i < 6; ++i) works[i]->wait(10s);
    EXPECT_THROW(works[2]->wait(10s), Error);
    EXPECT_THROW(works[0]->wait(10s), Error);
    if (all) {
      EXPECT_THROW(works[1]->wait(10s), Error);
    } else {
      EXPECT_THAT([&] { groups[0]->wait_for_hooks(10s); }, ::testing::ThrowsMessage<Error>("2"));
    }
    EXPECT_NO_THROW(groups[0]->wait_for_hooks(10s));
  }
}

// A later work may reuse the address of a destroyed one.
TEST(CompletionHooks, ErrorOutlivesItsWork) {
  const auto group = testing::make_thread_groups(1)[0];
  group->register_on_completion_hook([](const WorkInfo& info) { throw Error(std::to_string(info.seq)); });
  (void)group->barrier();
  for (int i = 0; i < 20; ++i) EXPECT_THROW(group->barrier()->wait(10s), Error);
  EXPECT_THAT([&] { group->wait_for_hooks(10s); }, ::testing::ThrowsMessage<Error>("1"));
}

TEST(CompletionHooks, ReportsFailedOperations) {
  const auto groups = testing::make_thread_groups(2);
  std::exception_ptr error;
  groups[0]->register_on_completion_hook([&](const WorkInfo& info) { error = info.error; });
  Tensor a = Tensor::full({4}, 1);
  Tensor b = Tensor::full({5}, 2);
  const auto first = groups[0]->allreduce(a);
  const auto second = groups[1]->allreduce(b);
  EXPECT_THROW(first->wait(10s), Mismatch);
  EXPECT_THROW(second->wait(10s), Mismatch);
  ASSERT_NE(error, nullptr);
  EXPECT_THROW(std::rethrow_exception(error), Mismatch);
}

TEST(CompletionHooks, HookRunsBeforeWaitThrows) {
  const auto groups = testing::make_thread_groups(2);
  std::atomic<int> failures = 0;
  const auto count = [&](const WorkInfo& info) { failures += info.error ? 1 : 0; };
  groups[0]->register_on_completion_hook(count, std::make_shared<ThreadExecutor>("hooks"));
  for (int i = 1; i <= 100; ++i) {
    Tensor a = Tensor::full({4}, 1);
    Tensor b = Tensor::full({5}, 2);
    const auto first = groups[0]->allreduce(a);
    const auto second = groups[1]->allreduce(b);
    EXPECT_THROW(first->wait(10s), Mismatch);
    ASSERT_EQ(failures, i);
    EXPECT_THROW(second->wait(10s), Mismatch);
  }
}

// On the waiting thread, and on the group's progress thread if no caller waits.
TEST(CompletionHooks, HookMayAbortOrShutDownGroup) {
  for (const bool abort : {true, false}) {
    for (const bool waited_for : {true, false}) {
      const auto groups = testing::make_thread_groups(2);
      groups[0]->register_on_completion_hook([&](const WorkInfo& info) {
        if (info.seq == 1 && abort) groups[0]->abort("enough");
        if (info.seq == 1 && !abort) groups[0]->shutdown();
      });
      const Tensor t = Tensor::zeros({10});
      const auto first = groups[0]->barrier();
      const auto second_barrier = groups[0]->barrier();
      const auto message = groups[0]->recv(t, 1);
      const auto peers = groups[1]->barrier();
      Promise<void> over;
      if (!waited_for) first->on_complete([&] { over.set_value(); }, Urgency::high);
      if (!waited_for) over.get_future().wait(10s);
      EXPECT_NO_THROW(first->wait(10s));
      EXPECT_THROW(second_barrier->wait(10s), Aborted);
      EXPECT_THROW(message->wait(10s), Aborted);
    }
  }
}

TEST(CompletionHooks, HooksOnAnExecutorMayWait) {
  const auto groups = testing::make_thread_groups(2);
  auto executor = std::make_shared<ThreadExecutor>("hooks");
  std::atomic<int> calls = 0;
  std::atomic<bool> elsewhere = true;
  const auto here = std::this_thread::get_id();
  groups[0]->register_on_completion_hook(
      [&](const WorkInfo& info) {
        elsewhere = elsewhere && std::this_thread::get_id() != here;
        if (++calls == 1) {  // an operation inside a hook; its hook runs after this one
          EXPECT_EQ(info.seq, 1u);
          Tensor c = Tensor::full({4}, 1);
          groups[0]->allreduce(c)->wait(10s);
        }
      },
      executor);
  Tensor a = Tensor::full({4}, 1);
  Tensor b = Tensor::full({4}, 2);
  Tensor d = Tensor::full({4}, 2);
  const auto second = groups[1]->allreduce(b);
  const auto third = groups[1]->allreduce(d);
  groups[0]->allreduce(a)->wait(10s);
  EXPECT_GE(calls, 1);
  groups[0]->wait_for_hooks(10s);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(elsewhere);
  second->wait(10s);
  third->wait(10s);
}

TEST(CompletionHooks, WaitForLongHookChecksInterrupts) {
  static std::atomic<int> looks = 0;
  const auto group = testing::make_thread_groups(1)[0];
  group->register_on_completion_hook(
      [](const WorkInfo&) {
        const auto last = Clock::now() + 20s;
        while (looks < 3 && Clock::now() < last) std::this_thread::yield();
      },
      std::make_shared<ThreadExecutor>("hooks"));
  const InterruptScope scope([] { ++looks; });
  EXPECT_NO_THROW(group->barrier()->wait());
  EXPECT_GE(looks, 3);
}

TEST(CompletionHooks, OperationsThatFinishDuringAHookAreReportedInOrder) {
  const auto groups = testing::make_thread_groups(2);
  Promise<void> go_on;
  std::vector<std::uint64_t> seen;
  std::atomic<int> ended = 0;
  groups[0]->register_on_completion_hook(
      [&](const WorkInfo& info) {
        if (seen.empty()) go_on.get_future().wait(20s);
        seen.push_back(info.seq);
      },
      std::make_shared<ThreadExecutor>("hooks"));
  groups[0]->register_on_completion_hook([&](const WorkInfo&) { ++ended; });  // queued after the hook above
  std::vector<Tensor> tensors;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 4; ++i) {
    for (const auto& group : groups) {
      tensors.push_back(Tensor::full({4}, 1));
      works.push_back(group->allreduce(tensors.back()));
    }
  }
  const auto deadline = deadline_after(20s);
  while (ended < 4 && Clock::now() < deadline) std::this_thread::yield();
  go_on.set_value();
  for (const auto& work : works) work->wait(20s);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{1, 2, 3, 4}));
}

TEST(CompletionHooks, FutureCompletesAfterHookWithItsError) {
  const auto groups = testing::make_thread_groups(2);
  std::atomic<int> calls = 0;
  groups[0]->register_on_completion_hook([&](const WorkInfo& info) {
    ++calls;
    if (info.seq == 2) throw Mismatch("no");
  });
  for (int i = 0; i < 2; ++i) {
    Tensor a = Tensor::full({4}, 1);
    Tensor b = Tensor::full({4}, 2);
    const auto future = groups[0]->allreduce(a)->get_future();
    groups[1]->allreduce(b)->wait(10s);
    if (i == 0) EXPECT_EQ(future.wait(10s).size(), 1u);
    else EXPECT_THROW(future.wait(10s), Mismatch);
    EXPECT_EQ(calls, i + 1);
  }
}

TEST(CompletionHooks, ManyThreadsAndLanes) {
  const auto groups = testing::make_thread_groups(2);
  std::array<std::vector<std::uint64_t>, 4> seen;
  std::atomic<int> inside = 0;
  groups[0]->register_on_completion_hook([&](const WorkInfo& info) {
    EXPECT_EQ(++inside, 1);
    seen[static_cast<std::size_t>(info.lane)].push_back(info.seq);
    --inside;
  });
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    for (int lane = 0; lane < 4; ++lane) {
      threads.emplace_back([&, rank, lane] {
        const ContextScope scope({.lane = lane});
        Tensor a = Tensor::full({4}, 1);
        for (int i = 0; i < 50; ++i) groups[static_cast<std::size_t>(rank)]->allreduce(a)->wait(20s);
      });
    }
  }
  for (auto& thread : threads) thread.join();
  for (const auto& lane : seen) {
    EXPECT_EQ(lane.size(), 50u);
    EXPECT_TRUE(std::is_sorted(lane.begin(), lane.end()));
  }
}

}  // namespace
}  // namespace hookline
