// Tests for Future and Promise: outcomes, continuations, coroutines and races.
#include <hookline/core/future.hpp>

#include <atomic>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/interrupt.hpp>

namespace hookline {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::exception_ptr make_error(const char* text) { return std::make_exception_ptr(PeerLost(text)); }

TEST(Future, CarriesAValue) {
  Promise<std::string> promise;
  const Future<std::string> future = promise.get_future();
  EXPECT_FALSE(future.done());
  EXPECT_THROW((void)future.value(), InvalidArgument);
  EXPECT_EQ(future.error(), nullptr);
  promise.set_value("x");
  EXPECT_TRUE(future.done());
  EXPECT_EQ(future.value(), "x");
  EXPECT_EQ(future.wait(), "x");
  EXPECT_THROW(promise.set_value("y"), InvalidArgument);
  EXPECT_THROW(promise.set_error(make_error("late")), InvalidArgument);
  EXPECT_FALSE(promise.try_set_value("z"));
  EXPECT_EQ(future.value(), "x");
}

TEST(Future, WaitTimesOutAndCanBeRepeated) {
  Promise<void> promise;
  const Future<void> future = promise.get_future();
  EXPECT_THAT([&] { future.wait(Milliseconds(5)); }, ThrowsMessage<Timeout>(HasSubstr("after 5 ms")));
  EXPECT_THROW(future.wait(Milliseconds(-1)), Timeout);
  std::thread completer([&] { promise.set_value(); });
  future.wait(Milliseconds::max());
  completer.join();
}

TEST(Future, WaitCanBeInterrupted) {
  Promise<int> promise;
  const Future<int> future = promise.get_future();
  {
    const InterruptScope scope([] { throw std::domain_error("interrupted"); });
    EXPECT_THROW(future.wait(seconds(60)), std::domain_error);
  }
  promise.set_value(7);
  EXPECT_EQ(future.wait(), 7);
}

TEST(Future, ErrorsKeepTheirTypeThroughChains) {
  Promise<int> promise;
  const Future<std::string> chain =
      promise.get_future().then([](const Future<int>& f) { return f.value() + 1; }).then([](const Future<int>& f) {
        return std::to_string(f.value());
      });
  promise.set_error(make_error("rank 1"));
  EXPECT_THAT([&] { (void)chain.wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
}

TEST(Future, ThenMapsFlattensAndCatches) {
  const Future<int> five = Future<int>::ready(5);
  EXPECT_EQ(five.then([](const Future<int>& f) { return f.value() * 2; }).value(), 10);

  Promise<int> later;
  const Future<int> flat = five.then([&](const Future<int>&) { return later.get_future(); });
  EXPECT_FALSE(flat.done());
  later.set_value(6);
  EXPECT_EQ(flat.value(), 6);

  const Future<void> thrown = five.then([](const Future<int>&) { throw Mismatch("sizes"); });
  EXPECT_THROW(thrown.value(), Mismatch);
  const Future<int> caught = thrown.then([](const Future<void>& f) { return f.error() ? -1 : 0; });
  EXPECT_EQ(caught.value(), -1);
}

TEST(Future, DroppedPromiseFailsTheFuture) {
  Future<int> future = Future<int>::ready(0);
  {
    future = Promise<int>().get_future();
  }
  EXPECT_THROW((void)future.wait(), Aborted);
}

TEST(Future, ContinuationsRunOnTheExecutor) {
  std::thread::id where;
  const auto executor = std::make_shared<ThreadExecutor>("test");
  Promise<int> promise(executor);
  const Future<int> future = promise.get_future();
  const auto note = [&](const Future<int>&) { where = std::this_thread::get_id(); };
  const Future<void> before = future.then(note);
  promise.set_value(1);
  before.wait(seconds(30));
  const std::thread::id first = std::exchange(where, {});
  EXPECT_NE(first, std::this_thread::get_id());
  future.then(note).wait(seconds(30));  // on a completed future too
  EXPECT_EQ(where, first);
}

TEST(Future, ContinuationRunsOnceWhenCompletersRace) {
  for (int round = 0; round < 1000; ++round) {
    Promise<int> promise;
    const Future<int> future = promise.get_future();
    std::atomic<int> ran = 0;
    std::atomic<int> winners = 0;
    std::atomic<int> start = 0;
    const auto together = [&] {
      ++start;
      while (start < 3) std::this_thread::yield();
    };
    std::thread completer([&] {
      together();
      winners += promise.try_set_value(1);
    });
    std::thread failer([&] {
      together();
      winners += promise.try_set_error(make_error("raced"));
    });
    together();
    for (int i = 0; i < 3; ++i) future.on_done([&] { ++ran; });
    completer.join();
    failer.join();
    ASSERT_EQ(ran, 3);
    ASSERT_EQ(winners, 1);
  }
}

TEST(Future, ContinuationMayDropTheLastReference) {
  auto promise = std::make_unique<Promise<int>>();
  bool second = false;
  promise->get_future().on_done([&] { promise.reset(); });
  promise->get_future().on_done([&] { second = true; });
  promise->set_value(1);
  EXPECT_TRUE(second);
}

Future<int> add(Future<int> a, Future<int> b) { co_return co_await a + co_await b; }

Future<void> rethrow(Future<int> a, std::string& seen) {
  try {
    co_await a;
  } catch (const PeerLost& e) {
    seen = e.what();
    throw;
  }
}

TEST(Coroutine, AwaitsAndReturns) {
  Promise<int> a;
  Promise<int> b;
  const Future<int> sum = add(a.get_future(), b.get_future());
  b.set_value(2);
  EXPECT_FALSE(sum.done());
  a.set_value(40);
  EXPECT_EQ(sum.value(), 42);
}

TEST(Coroutine, ErrorsPropagateThroughAwait) {
  std::string seen;
  const Future<void> failed = rethrow(Future<int>::failed(make_error("rank 2")), seen);
  EXPECT_EQ(seen, "rank 2");
  EXPECT_THROW(failed.value(), PeerLost);
}

TEST(Coroutine, ResumesOnTheExecutorOfTheAwaitedFuture) {
  const auto executor = std::make_shared<ThreadExecutor>("test");
  Promise<int> promise(executor);
  const auto body = [](Future<int> f) -> Future<std::thread::id> {
    co_await f;
    co_return std::this_thread::get_id();
  };
  const Future<std::thread::id> where = body(promise.get_future());
  promise.set_value(1);
  EXPECT_NE(where.wait(seconds(30)), std::this_thread::get_id());
}

TEST(Coroutine, RacesWithCompletion) {
  for (int round = 0; round < 2000; ++round) {
    Promise<int> promise;
    Future<int> future = promise.get_future();
    std::thread completer([&] { promise.set_value(round); });
    const Future<int> sum = add(std::move(future), Future<int>::ready(1));
    ASSERT_EQ(sum.wait(seconds(30)), round + 1);
    completer.join();
  }
}

TEST(WhenAll, WaitsForAllAndKeepsTheOrder) {
  Promise<int> a;
  Promise<int> b;
  const auto all = when_all(std::vector{a.get_future(), b.get_future()});
  b.set_value(2);
  EXPECT_FALSE(all.done());
  a.set_value(1);
  EXPECT_THAT(all.value(), ElementsAre(1, 2));
  EXPECT_TRUE(when_all(std::vector<Future<int>>{}).done());
}

TEST(WhenAll, ErrorWaitsForAllFutures) {
  Promise<void> slow;
  const auto all = when_all(std::vector{Future<void>::failed(make_error("first")), slow.get_future()});
  EXPECT_FALSE(all.done()) << "the other operation may still write to its buffers";
  slow.set_error(std::make_exception_ptr(Mismatch("second")));
  EXPECT_THROW(all.value(), PeerLost);
}

TEST(WhenAll, MixesTypes) {
  Promise<void> last;
  const auto all = when_all(Future<int>::ready(1), Future<std::string>::ready("x"), last.get_future());
  EXPECT_FALSE(all.done());
  last.set_value();
  EXPECT_EQ(all.value(), std::make_tuple(1, std::string("x"), std::monostate{}));
}

}  // namespace
}  // namespace hookline
