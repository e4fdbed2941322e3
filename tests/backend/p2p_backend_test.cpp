// Tests of backends over a transport that the contract does not cover: bitwise results, and failures that a test
// transport injects.
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include <hookline/backend/threads.hpp>
#include <hookline/backend/transport.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/process_group.hpp>

#include "harness/memory_transport.hpp"

namespace hookline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::shared_ptr<Backend>> transport_backends(int size) {
  std::vector<std::shared_ptr<Backend>> backends;
  for (auto& transport : testing::make_memory_transports(size))
    backends.push_back(make_transport_backend(std::move(transport)));
  return backends;
}

// Returns the sum of random tensors on rank 0.
Tensor sum_of(const std::vector<std::shared_ptr<Backend>>& backends, std::int64_t count, DType dtype) {
  std::vector<std::thread> threads;
  Tensor result;
  for (const auto& backend : backends) {
    threads.emplace_back([&] {
      const auto group = make_group(backend, std::chrono::seconds(30));
      const Tensor t = Tensor::empty({count}, dtype);
      std::mt19937 random(static_cast<unsigned>(group->rank()) + 1);
      std::normal_distribution<float> normal;
      for (std::int64_t i = 0; i < count; ++i) {
        if (dtype == DType::f32) t.data<float>()[i] = normal(random);
        else t.data<BFloat16>()[i] = BFloat16(normal(random));
      }
      group->allreduce(t)->wait();
      group->barrier()->wait();
      if (group->rank() == 0) result = t;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

TEST(TransportBackend, SumsAreBitwiseEqualToLocalBackends) {
  for (const std::int64_t count : {100, 700'001}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor a = sum_of(transport_backends(5), count, dtype);
      const Tensor b = sum_of(make_threads_backends(5), count, dtype);
      EXPECT_EQ(std::memcmp(a.bytes(), b.bytes(), a.nbytes()), 0) << count << " " << name(dtype);
    }
  }
}

TEST(TransportBackend, HasTheLanesOfLocalBackends) {
  EXPECT_EQ(transport_backends(1)[0]->capabilities().lanes, kNumLanes);
  EXPECT_EQ(make_threads_backends(1)[0]->capabilities().lanes, kNumLanes);
}

TEST(TransportBackend, ShorterWaitTimeoutTakesEffect) {
  const auto backends = transport_backends(2);
  const auto group = make_group(backends[0], std::chrono::hours(1));
  const Tensor t = Tensor::zeros({10});
  const WorkPtr first = group->allreduce(t);
  const WorkPtr second = group->allreduce(t);
  first->on_complete([] {}, Urgency::high);  // the lane's thread drives it
  EXPECT_THAT([&] { second->wait(Milliseconds(20)); }, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not join")));
  EXPECT_THROW(first->wait(), Timeout);
}

TEST(LocalBackend, QueuedOperationKeepsItsTimeout) {
  const auto backends = make_threads_backends(2);
  const auto group = make_group(backends[0]);
  const Tensor t = Tensor::zeros({10});
  const WorkPtr first = group->allreduce(t, {.timeout = std::chrono::seconds(20)});
  const WorkPtr second = group->allreduce(t, {.timeout = Milliseconds(200)});
  EXPECT_THAT([&] { second->wait(); }, ThrowsMessage<Timeout>(HasSubstr("rank 1 did not join")));
  EXPECT_LT(Clock::now() - second->time_started(), std::chrono::seconds(10));
  EXPECT_THROW(first->wait(), Timeout);
}

TEST(TransportBackend, ShutdownFailsPendingOperations) {
  const auto backends = transport_backends(2);
  const auto group = make_group(backends[0], std::chrono::hours(1));
  const Tensor t = Tensor::zeros({10});
  const std::vector<WorkPtr> works = {group->allreduce(t), group->recv(t, 1), group->send(Tensor::zeros({100'000}), 1)};
  group->shutdown();
  for (const WorkPtr& work : works) EXPECT_THROW(work->wait(), Aborted);
  EXPECT_THROW(group->barrier()->wait(), Aborted);
}

// A callback on the driving thread shuts down the group, after which the lane's thread no longer exists.
TEST(TransportBackend, ShutdownFromCallbackFailsQueuedOperations) {
  for (int round = 0; round < 20; ++round) {
    const auto backends = transport_backends(1);
    const auto group = make_group(backends[0], std::chrono::hours(1));
    const std::thread::id waiter = std::this_thread::get_id();
    const WorkPtr first = group->barrier();
    const WorkPtr second = group->barrier();
    first->on_complete(
        [&] {
          if (std::this_thread::get_id() == waiter) group->shutdown();  // false if the lane's thread completed it
        },
        Urgency::low);
    first->wait();
    try {
      second->get_future().wait(std::chrono::seconds(5));
    } catch (const Aborted&) {
    }
  }
}

// A callback may start and await other operations while the group is being shut down.
TEST(TransportBackend, CallbacksDuringShutdownMayStartOperations) {
  for (const auto& backends : {transport_backends(2), make_threads_backends(2)}) {
    const auto group = make_group(backends[0], std::chrono::hours(1));
    Promise<void> last_promise;
    const Future<void> last = last_promise.get_future();
    group->barrier()->get_future().on_done([&] {
      for (int i = 0; i < 20'000; ++i) {  // long enough for shutdown() to wait for this callback
        group->barrier()->get_future().on_done([] {});
      }
      last_promise.set_value();
    });
    group->shutdown();
    EXPECT_NO_THROW(last.wait(std::chrono::seconds(20)));
  }
}

TEST(TransportBackend, RejectsUnknownLane) {
  for (const auto& backends : {transport_backends(1), make_threads_backends(1)}) {
    const auto group = make_group(backends[0]);
    const ContextScope lane({.lane = group->capabilities().lanes});
    EXPECT_THAT([&] { (void)group->barrier(); },
                ThrowsMessage<InvalidArgument>(HasSubstr("lane is out of range: expected 0 to 4, got 5")));
  }
}

// The thread that fails the group completes the queued operations; start() completes later ones.
TEST(TransportBackend, OperationsRacingWithAbortComplete) {
  for (int round = 0; round < 300; ++round) {
    const auto backends = transport_backends(2);
    const auto group = make_group(backends[0], std::chrono::hours(1));
    const Tensor t = Tensor::zeros({4'000});
    std::vector<WorkPtr> works(50);
    std::atomic<bool> begun = false;
    std::thread starts([&] {
      for (std::size_t i = 0; i < works.size(); ++i) {
        works[i] = i % 2 ? group->recv(t, 1) : group->send(t, 1);
        begun = true;
      }
    });
    while (!begun) std::this_thread::yield();
    group->abort("enough");
    starts.join();
    for (const WorkPtr& work : works) EXPECT_THROW(work->wait(Milliseconds(20'000)), Aborted);
  }
}

class BlamedRank : public ::testing::Test {
 protected:
  // Rank 1 waits for rank 0. Rank 2 runs `first` and leaves. Then the connections of rank 0 close without a goodbye.
  void expect_error_on_rank_1(const std::function<void(ProcessGroup&)>& first, const std::string& text) {
    const auto transports = testing::make_memory_transports(3);
    std::vector<std::shared_ptr<ProcessGroup>> groups;
    for (const auto& transport : transports) {
      groups.push_back(make_group(make_transport_backend(transport), std::chrono::hours(1)));
    }
    const WorkPtr barrier = groups[1]->barrier();
    first(*groups[2]);
    groups[2]->shutdown();
    transports[0]->close();
    EXPECT_THAT([&] { barrier->wait(); }, ThrowsMessage<PeerLost>(HasSubstr(text)));
  }
};

TEST_F(BlamedRank, SilentDeathBlamesTheEarlierDeparture) {
  expect_error_on_rank_1([](ProcessGroup&) {}, "rank 2 left the group");
}

TEST_F(BlamedRank, DepartureAfterCompletionIsNotBlamed) {
  expect_error_on_rank_1([](ProcessGroup& group) { (void)group.barrier(); }, "rank 0 died");
}

// Rank 0's header is not received by rank 1, and its abort message is queued behind the header.
TEST_F(BlamedRank, AbortIsSentDespiteUndeliveredMessages) {
  const auto transports = testing::make_memory_transports(2, true);
  auto late = make_group(make_transport_backend(transports[1]), std::chrono::hours(1));
  {
    const auto group = make_group(make_transport_backend(transports[0]), std::chrono::hours(1));
    EXPECT_THROW(group->barrier({.timeout = Milliseconds(20)})->wait(), Timeout);
  }
  EXPECT_THAT([&] { late->barrier()->wait(); }, ThrowsMessage<Aborted>(HasSubstr("rank 1 did not join")));
}

// Rank 0 shuts down while an operation is pending; its goodbye is queued behind the undelivered header.
TEST_F(BlamedRank, GoodbyeIsSentDespiteUndeliveredMessages) {
  const auto transports = testing::make_memory_transports(2, true);
  auto late = make_group(make_transport_backend(transports[1]), std::chrono::hours(1));
  const auto group = make_group(make_transport_backend(transports[0]), std::chrono::hours(1));
  const WorkPtr pending = group->barrier();
  group->shutdown();
  EXPECT_THROW(pending->wait(), Aborted);
  EXPECT_THAT([&] { late->barrier()->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 0 left the group")));
}

}  // namespace
}  // namespace hookline
