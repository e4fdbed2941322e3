// A forked child of a rank: its calls are rejected, and the parent's group is unaffected.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include <gmock/gmock.h>

#include <hookline/backend/transport.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/process_group.hpp>

#include "harness/memory_transport.hpp"
#include "harness/spawn.hpp"

namespace hookline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kRanks = 4;  // two on each host of a hierarchical group

// Runs `body` in a forked child and waits for it. The child skips all clean-up of the parent (_exit).
void in_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    try {
      body();
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

void expect_rejected(const std::function<void()>& call, const std::string& what) {
  EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(
                        ::testing::AllOf(::testing::StartsWith(what), HasSubstr("made before fork()"))));
}

class Forked : public ::testing::TestWithParam<testing::GroupFixture> {};

TEST_P(Forked, ReleasingABufferKeepsTheParentsCopy) {
  GetParam().spawn(kRanks, [](ProcessGroup& group) {
    Tensor buffer = group.empty({5'000});
    buffer.fill(3);
    in_child([&] { buffer = Tensor(); });
    EXPECT_EQ(buffer.data<float>()[0], 3);
    EXPECT_EQ(buffer.data<float>()[4'999], 3);
    group.allreduce(buffer)->wait();
    EXPECT_EQ(buffer.data<float>()[4'999], 3 * kRanks);
  });
}

TEST_P(Forked, EmptyIsRejected) {
  GetParam().spawn(kRanks, [](ProcessGroup& group) {
    in_child([&] { expect_rejected([&] { (void)group.empty({10}); }, "empty"); });
    group.barrier()->wait();
  });
}

TEST_P(Forked, AbortIsRejectedAndNotPropagated) {
  GetParam().spawn(kRanks, [](ProcessGroup& group) {
    group.barrier()->wait();
    if (group.rank() == 0) in_child([&] { expect_rejected([&] { group.abort("not its own"); }, "abort"); });
    group.barrier()->wait();
  });
}

TEST_P(Forked, NewGroupIsRejectedInChildOnly) {
  GetParam().spawn(kRanks, [](ProcessGroup& group) {
    in_child([&] { expect_rejected([&] { (void)group.new_group({0, 1, 2, 3}); }, "new_group"); });
    group.new_group({0, 1, 2, 3})->barrier()->wait();
  });
}

TEST_P(Forked, WaitOnParentsWorkIsRejected) {
  GetParam().spawn(kRanks, [](ProcessGroup& group) {
    const Tensor t = Tensor::full({10}, 1);
    if (group.rank() != 0) {  // late, so that rank 0's allreduce is pending
      group.recv(Tensor::zeros({1}), 0)->wait();
      group.allreduce(t)->wait();
      return;
    }
    const WorkPtr work = group.allreduce(t);
    in_child([&] {
      expect_rejected([&] { work->wait(Milliseconds(10)); }, "wait");
      expect_rejected([&] { (void)work->is_completed(); }, "is_completed");
    });
    for (int r = 1; r < kRanks; ++r) group.send(Tensor::zeros({1}), r)->wait();
    work->wait();
    EXPECT_EQ(t.data<float>()[9], kRanks);
  });
}

TEST_P(Forked, GetFutureIsRejected) {
  GetParam().spawn(kRanks, [](ProcessGroup& group) {
    const Tensor t = Tensor::full({10}, 1);
    const WorkPtr over = group.allreduce(t);
    over->wait();
    if (group.rank() != 0) {
      group.recv(Tensor::zeros({1}), 0)->wait();
      group.allreduce(t)->wait();
      return;
    }
    const WorkPtr pending = group.allreduce(t);
    in_child([&] {
      for (const WorkPtr& work : {over, pending}) expect_rejected([&] { (void)work->get_future(); }, "get_future");
    });
    for (int r = 1; r < kRanks; ++r) group.send(Tensor::zeros({1}), r)->wait();
    pending->wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Forked,
                         ::testing::Values(testing::shm_fixture(), testing::hierarchical_processes_fixture()),
                         [](const auto& fixture) { return fixture.param.name; });

TEST(ForkedTransport, AbortAndGetFutureAreRejected) {
  const auto transports = testing::make_memory_transports(2);
  const auto group = make_group(make_transport_backend(transports[0]), std::chrono::seconds(20));
  const WorkPtr work = group->barrier();
  in_child([&] {
    expect_rejected([&] { group->abort("not its own"); }, "abort");
    expect_rejected([&] { (void)work->get_future(); }, "get_future");
  });
}

}  // namespace
}  // namespace hookline
