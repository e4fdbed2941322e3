// Tests the debug wrappers: NaN checks, cross-check, flight recorder and HOOKLINE_DEBUG.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/cross_check.hpp>
#include <hookline/group/decorator.hpp>
#include <hookline/group/flight_recorder.hpp>
#include <hookline/group/nan_checks.hpp>
#include <hookline/store/memory_store.hpp>

#include "group/debug_wrappers.hpp"
#include "group/rank_threads.hpp"
#include "harness/temp_directory.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using testing::Groups;
using ::testing::HasSubstr;
using testing::make_thread_groups;
using ::testing::Not;
using testing::on_ranks;
using testing::sum_of_ones;

TEST(NanChecks, NamesFirstElementAndAbortsPeers) {
  Groups groups = make_thread_groups(2);
  for (auto& g : groups) g = with_nan_checks(g);
  const auto errors = on_ranks(groups, [](ProcessGroup& group, int rank) {
    EXPECT_EQ(sum_of_ones(group), 2);
    Tensor t = Tensor::full({3, 4}, 1);
    if (rank == 1) {
      t.slice(0, 1, 2).slice(1, 2, 3).fill(std::numeric_limits<double>::quiet_NaN());
      t.slice(0, 2, 3).fill(std::numeric_limits<double>::infinity());
    }
    group.allreduce(t)->wait(20s);
  });
  EXPECT_THAT(errors[1], HasSubstr("allreduce (number 2) on rank 1 of 2: the input contains NaN: "
                                   "tensor 0, float32[3, 4], element [1, 2]"));
  EXPECT_THAT(errors[0], HasSubstr("the input contains NaN"));
}

TEST(NanChecks, ChecksEveryFloatTypeAndOnlySentTensors) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()}) {
      const auto group = with_nan_checks(make_thread_groups(1)[0]);
      Tensor t = Tensor::full({3000}, 1, dtype);
      t.slice(0, 2500, 2501).fill(value);
      EXPECT_THROW((void)group->allreduce(t), InvalidArgument);
      Tensor strided = Tensor::full({10, 2}, 1, dtype);
      strided.slice(0, 3, 4).fill(value);
      EXPECT_THROW((void)with_nan_checks(make_thread_groups(1)[0])->broadcast(strided.slice(1, 1, 2)), InvalidArgument);
    }
  }
  Groups groups = make_thread_groups(2);
  for (auto& g : groups) g = with_nan_checks(g);
  const auto errors = on_ranks(groups, [](ProcessGroup& group, int rank) {
    Tensor t = Tensor::full({2}, rank == 0 ? 1 : std::numeric_limits<double>::quiet_NaN());
    group.broadcast(t, {.root = 0})->wait(20s);  // the NaN is on rank 1, which only receives
    std::vector<std::int64_t> integers = {-1, 0x7ff0000000000000};
    group.allreduce(Tensor::borrow(integers))->wait(20s);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

/// A group that corrupts one element of every result.
class FaultyGroup final : public GroupDecorator {
 public:
  explicit FaultyGroup(std::shared_ptr<ProcessGroup> inner, double factor = 1.25)
      : GroupDecorator(std::move(inner)), factor_(factor) {}
  WorkPtr run(Operation c) override {
    const auto outputs = c.outputs;
    const auto work = inner()->run(std::move(c));
    work->wait(20s);
    outputs[0].flatten().slice(0, 5, 6) *= factor_;
    return work;
  }

 private:
  const double factor_;
};

TEST(CrossCheck, RequiresSameBitsWithoutTolerance) {
  const Groups groups = make_thread_groups(1);
  const Groups others = make_thread_groups(1);
  const auto exact = with_cross_check(groups[0], std::make_shared<FaultyGroup>(others[0], -1));
  const auto tolerant = with_cross_check(groups[0], std::make_shared<FaultyGroup>(others[0], -1), {.tolerance = 0.1});
  EXPECT_THROW(exact->allreduce(Tensor::zeros({6}))->wait(20s), Error);  // 0 and -0 have different bits
  tolerant->allreduce(Tensor::zeros({6}))->wait(20s);
  const Tensor infinite = Tensor::full({6}, std::numeric_limits<double>::infinity());
  EXPECT_THROW(tolerant->allreduce(infinite)->wait(20s), Error) << "infinities of opposite sign";
}

TEST(CrossCheck, SetsTimeoutOfBothGroups) {
  const Groups groups = make_thread_groups(1);
  const Groups others = make_thread_groups(1);
  with_cross_check(groups[0], others[0])->set_timeout(3s);
  EXPECT_EQ(groups[0]->timeout(), 3s);
  EXPECT_EQ(others[0]->timeout(), 3s);
}

TEST(CrossCheck, NamesFirstDifference) {
  const Groups first = make_thread_groups(2);
  const Groups second = make_thread_groups(2);
  const Groups third = make_thread_groups(2);
  Groups same, different, tolerant;
  for (std::size_t r = 0; r < 2; ++r) {
    same.push_back(with_cross_check(first[r], second[r]));
    different.push_back(with_cross_check(first[r], std::make_shared<FaultyGroup>(third[r])));
    tolerant.push_back(with_cross_check(first[r], std::make_shared<FaultyGroup>(third[r]), {.tolerance = 0.3}));
  }
  for (const auto& e : on_ranks(same, [](ProcessGroup& g, int) {
         EXPECT_EQ(sum_of_ones(g), 2);
         Tensor in = Tensor::full({3}, g.rank());
         Tensor out = Tensor::zeros({6});
         EXPECT_EQ(g.allgather_into_tensor(out, in)->get_future().wait(20s).size(), 1u);
         EXPECT_EQ(out.slice(0, 5, 6).item<int>(), 1);
         g.reduce(in, {.root = 1})->wait(20s);
         const std::int64_t own = 3 * g.rank();
         g.reduce_scatter_tensor(out.slice(0, own, own + 3), out)->wait(20s);
         EXPECT_EQ(out.slice(0, own, own + 1).item<int>(), 2 * g.rank());
         g.barrier()->wait(20s);
       })) {
    EXPECT_EQ(e, "");
  }
  for (const auto& e : on_ranks(different, [](ProcessGroup& g, int) { sum_of_ones(g); })) {
    EXPECT_THAT(e, HasSubstr("threads and threads differ in operation number"));
    EXPECT_THAT(e, HasSubstr("tensor 0, float32[8], element 5: 2 and 2.5"));
  }
  for (const auto& e : on_ranks(different, [](ProcessGroup& g, int) {
         Tensor t = Tensor::full({8}, 1);
         g.allreduce(t)->get_future().wait(20s);
       })) {
    EXPECT_THAT(e, HasSubstr("element 5"));
  }
  for (const auto& e : on_ranks(tolerant, [](ProcessGroup& g, int) { sum_of_ones(g); })) EXPECT_EQ(e, "");
  const auto reduced = on_ranks(different, [](ProcessGroup& g, int) {
    Tensor t = Tensor::full({8}, 1);
    g.reduce(t, {.root = 1})->wait(20s);
  });
  EXPECT_EQ(reduced[0], "");  // outputs of reduce are unspecified on ranks other than the root
  EXPECT_THAT(reduced[1], HasSubstr("element 5"));
  EXPECT_THROW(with_cross_check(first[0], second[1]), InvalidArgument);
  EXPECT_THROW(with_cross_check(first[0], nullptr), InvalidArgument);
}

std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(FlightRecorder, KeepsLastOperations) {
  const test::TempDirectory directory;
  const auto group =
      with_flight_recorder(make_thread_groups(1)[0], {.capacity = 3, .directory = directory.path(), .name = "g"});
  for (int i = 0; i < 5; ++i) sum_of_ones(*group);
  Tensor t = Tensor::full({2, 3}, 1, DType::i32);
  group->broadcast(t)->wait(20s);
  const std::string text = flight_records(*group);
  EXPECT_THAT(text, HasSubstr(R"("group": "g", "backend": "threads", "rank": 0, "size": 1)"));
  EXPECT_THAT(text, HasSubstr(R"("count": 6)"));
  EXPECT_THAT(text, Not(HasSubstr(R"("number": 3,)")));
  EXPECT_THAT(text, HasSubstr(R"("number": 4,)"));
  EXPECT_THAT(text, HasSubstr(R"("op": "broadcast", "state": "done", "tensors": 1, "bytes": 24)"));
  EXPECT_THAT(text, HasSubstr(R"("dtype": "int32", "shape": [2, 3], "root": 0)"));
  const auto path = dump_flight_records(*with_nan_checks(group));  // finds the recorder inside other wrappers
  EXPECT_EQ(path, directory / "g.rank0.json");
  EXPECT_THAT(text_of(path), HasSubstr(R"("reason": "request")"));
  EXPECT_THROW(flight_records(*make_thread_groups(1)[0]), InvalidArgument);
  EXPECT_THROW(with_flight_recorder(make_thread_groups(1)[0], {.capacity = 0}), InvalidArgument);
  EXPECT_THROW(dump_flight_records(*group, "/proc/no/such/place"), ResourceError);
}

TEST(FlightRecorder, EscapesNamesAsUtf8) {
  const auto group = with_flight_recorder(make_thread_groups(1)[0], {.name = "Größe 层\n\x7f\xff"});
  EXPECT_THAT(flight_records(*group), HasSubstr(R"("group": "Größe 层\u000a\u007f)"
                                                "\xef\xbf\xbd\""));
}

TEST(FlightRecorder, DumpsNestedSubgroups) {
  const test::TempDirectory directory;
  Groups groups = make_thread_groups(60);
  for (auto& g : groups) g = with_flight_recorder(g, {.directory = directory.path(), .name = "g"});
  std::vector<int> all(groups.size());
  std::iota(all.begin(), all.end(), 0);
  const auto errors = on_ranks(groups, [&](ProcessGroup& g, int rank) {
    const auto of_all = g.new_group(all);
    const auto again = of_all->new_group(all);
    if (rank == 0) dump_flight_records(*again);
  });
  EXPECT_EQ(errors, std::vector<std::string>(all.size()));
}

TEST(FlightRecorder, ConcurrentDumpsLeaveCompleteFile) {
  const test::TempDirectory directory;
  const auto group = with_flight_recorder(make_thread_groups(1)[0], {.directory = directory.path(), .name = "g"});
  sum_of_ones(*group);
  const auto dump_often = [&] {
    for (int i = 0; i < 200; ++i) EXPECT_THAT(text_of(dump_flight_records(*group)), EndsWith("]}\n"));
  };
  std::thread other(dump_often);
  dump_often();
  other.join();
}

TEST(FlightRecorder, DumpsOnFirstError) {
  const test::TempDirectory directory;
  Groups groups = make_thread_groups(2);
  for (auto& g : groups) g = with_flight_recorder(g, {.directory = directory / "sub", .name = "g"});
  on_ranks(groups, [](ProcessGroup& g, int rank) {
    sum_of_ones(g);
    Tensor t = Tensor::full({4}, 1);
    if (rank == 0) g.allreduce(t)->wait(100ms);
  });
  const std::string text = text_of(directory / "sub/g.rank0.json");
  EXPECT_THAT(text, HasSubstr(R"("reason": "error")"));
  EXPECT_THAT(text, HasSubstr(R"("op": "allreduce", "state": "failed")"));
  EXPECT_THAT(text, HasSubstr("rank 1"));
  EXPECT_FALSE(std::filesystem::exists(directory / "sub/g.rank1.json"));
}

TEST(FlightRecorder, RecordsRejectedOperations) {
  const test::TempDirectory directory;
  const auto group = with_flight_recorder(make_thread_groups(1)[0], {.directory = directory.path(), .name = "g"});
  EXPECT_THROW((void)group->broadcast(Tensor::full({4}, 1), {.root = 7}), InvalidArgument);
  EXPECT_THAT(flight_records(*group), HasSubstr(R"("op": "broadcast", "state": "failed")"));
  EXPECT_THAT(flight_records(*group), HasSubstr("root is out of range: expected 0 to 0, got 7"));
}

// Interrupts the dump thread with another signal.
void interrupt_dumping_thread() {
  static std::atomic<bool> came = false;
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) { came = true; };
  sigaction(SIGUSR2, &action, &before);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (text_of(task.path() / "comm") != "hookline-dump\n") continue;
    ASSERT_EQ(tgkill(getpid(), std::stoi(task.path().filename()), SIGUSR2), 0);
  }
  const auto deadline = deadline_after(20s);
  while (!came && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(came);
  sigaction(SIGUSR2, &before, nullptr);
}

TEST(FlightRecorder, DumpsOnSignal) {
  const test::TempDirectory directory;
  const auto group = with_flight_recorder(make_thread_groups(1)[0], {.directory = directory.path(), .name = "s"});
  sum_of_ones(*group);
  interrupt_dumping_thread();
  std::raise(SIGUSR1);
  const auto path = directory / "s.rank0.json";
  const auto deadline = deadline_after(20s);
  while (!std::filesystem::exists(path) && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_THAT(text_of(path), HasSubstr(R"("reason": "SIGUSR1")"));
}

TEST(DebugWrappers, StacksWrappersByName) {
  const auto store = std::make_shared<MemoryStore>();
  Groups groups = make_thread_groups(2);
  for (auto& g : groups) g = group::with_debug_wrappers(g, "collectives, flight_recorder,nan", store);
  EXPECT_EQ(on_ranks(groups, [](ProcessGroup& g, int) { EXPECT_EQ(sum_of_ones(g), 2); }),
            (std::vector<std::string>(2)));
  // wait() may return before the record is complete.
  const auto give_up = Clock::now() + 20s;
  while (flight_records(*groups[0]).find(R"("op": "allreduce", "state": "done")") == std::string::npos) {
    ASSERT_LT(Clock::now(), give_up) << flight_records(*groups[0]);
    std::this_thread::yield();
  }
  try {
    group::with_debug_wrappers(groups[0], "checkd", store);
    FAIL();
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), HasSubstr("unknown name 'checkd'; expected collectives, flight_recorder, nan"));
  }
}

}  // namespace
}  // namespace hookline
