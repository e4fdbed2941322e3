// Explores interleavings of the local protocol in one thread: a seeded random schedule steps the ranks and kills,
// stops, fails or closes one of them at any state. A failing seed is printed; HOOKLINE_SEED=n replays it,
// HOOKLINE_SEEDS=n sets the number of seeds.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

#include "backend/local/local_context.hpp"
#include "backend/threads/threads_memory.hpp"
#include "contract/group_reference.hpp"

namespace hookline::local {
namespace {

using hookline::testing::element;
using hookline::testing::expected_input;
using hookline::testing::expected_reduction;
using hookline::testing::fill_with;
using hookline::testing::first_difference;

// One operation of the program that every rank runs.
struct ProgramStep {
  OpType type;
  std::int64_t count;
  int lane;
  int root;
  bool shared;           ///< true if the tensors are in shared memory
  int mismatching_rank;  ///< the rank that passes another count, or -1
};

enum class Fault { none, kill, stop, fail, leave };

class Schedule {
 public:
  explicit Schedule(std::uint64_t seed)
      : random_(seed), ranks_(2 + pick(3)), group_memory_(std::make_shared<threads::GroupMemory>(ranks_, false)) {
    fault_ = static_cast<Fault>(pick(5));
    victim_ = pick(ranks_);
    fault_at_ = pick(120);
    const int calls = 1 + pick(8);
    for (int i = 0; i < calls; ++i) {
      constexpr OpType kTypes[] = {OpType::allreduce,
                                   OpType::broadcast,
                                   OpType::allgather_into_tensor,
                                   OpType::reduce,
                                   OpType::reduce_scatter_tensor,
                                   OpType::alltoall_base,
                                   OpType::barrier,
                                   OpType::send};
      constexpr std::int64_t kCounts[] = {1, 100, 5'000, 70'000, 300'000};
      program_.push_back({kTypes[pick(8)], kCounts[pick(5)], pick(kNumLanes), pick(ranks_), pick(2) == 1,
                          pick(10) == 0 ? pick(ranks_) : -1});
    }
    for (int r = 0; r < ranks_; ++r) {
      auto memory = std::make_unique<threads::ThreadsMemory>(group_memory_, r);
      contexts_.push_back(std::make_shared<LocalContext>(
          std::move(memory), LocalContextOptions{.name = "test", .progress_thread = false}));
      contexts_.back()->open();
    }
    started_.resize(contexts_.size());
  }

  ~Schedule() {
    for (auto& engine : contexts_) engine->close();
  }

  std::string describe() const {
    return fmt::format("{} ranks, {} calls, fault {} of rank {} at step {}", ranks_, program_.size(),
                       static_cast<int>(fault_), victim_, fault_at_);
  }

  // Steps the ranks until all running ranks have completed the program. The bound on the steps detects hangs.
  void run() {
    for (int step = 0; !finished(); ++step) {
      ASSERT_LT(step, 20'000) << "the ranks hang";
      if (step == fault_at_) inject_fault();
      const int rank = pick(ranks_);
      if (rank == victim_ && victim_stopped_) continue;
      auto& mine = started_[static_cast<std::size_t>(rank)];
      LocalContext& context = *contexts_[static_cast<std::size_t>(rank)];
      if (mine.size() < program_.size() && pick(2) == 0) {
        mine.push_back(start(rank, program_[mine.size()]));
      } else {
        context.drive();
        if (pick(4) == 0) context.check_peers();
      }
    }
    for (int r = 0; r < ranks_; ++r) check(r);
  }

 private:
  struct Started {
    std::vector<std::shared_ptr<LocalOp>> operations;  ///< one, or a send and a receive
    Tensor input;
    Tensor output;
  };

  int pick(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

  void inject_fault() {
    LocalContext& context = *contexts_[static_cast<std::size_t>(victim_)];
    if (fault_ == Fault::kill) group_memory_->mark_dead(victim_);
    if (fault_ == Fault::fail) context.fail(std::make_exception_ptr(Aborted("fault injected by the test")));
    if (fault_ == Fault::leave) context.close();
    // The rank may reuse the tensors of failed operations: overwrite them, so that a late read by a peer is detected.
    for (const Started& s : started_[static_cast<std::size_t>(victim_)]) {
      const auto failed = [](const auto& operation) { return operation->done() && operation->exception(); };
      if (fault_ == Fault::none || !std::all_of(s.operations.begin(), s.operations.end(), failed)) continue;
      s.input.fill(100);
      s.output.fill(100);
    }
    victim_stopped_ = fault_ == Fault::kill || fault_ == Fault::stop;
    fault_injected_ = fault_ != Fault::none;
    if (fault_ == Fault::stop) {
      // Expire all pending operations of the other ranks; start() expires later ones.
      for (auto& rank : started_) {
        for (auto& s : rank) {
          for (auto& operation : s.operations) operation->tighten_deadline(Clock::now());
        }
      }
    }
  }

  bool is_running(int rank) const { return !(victim_stopped_ && rank == victim_); }

  bool finished() const {
    for (int r = 0; r < ranks_; ++r) {
      const auto& mine = started_[static_cast<std::size_t>(r)];
      if (!is_running(r)) continue;
      if (mine.size() < program_.size()) return false;
      for (const Started& s : mine) {
        for (const auto& operation : s.operations) {
          if (!operation->done()) return false;
        }
      }
    }
    return true;
  }

  Tensor tensor(int rank, std::int64_t count, bool shared) {
    const auto memory =
        contexts_[static_cast<std::size_t>(rank)]->memory().allocate(static_cast<std::size_t>(count) * 4);
    return shared ? Tensor::wrap(memory.get(), {count}, DType::f32, {.owner = memory}) : Tensor::zeros({count});
  }

  Started start(int rank, const ProgramStep& call) {
    LocalContext& context = *contexts_[static_cast<std::size_t>(rank)];
    const Milliseconds timeout = victim_stopped_ && fault_ == Fault::stop ? Milliseconds(0) : std::chrono::hours(1);
    const std::int64_t count = call.count + (call.mismatching_rank == rank ? 1 : 0);
    Started s;
    s.input = tensor(rank, count, call.shared);
    s.output = s.input;
    fill_with(s.input, [&](std::int64_t i) { return element(rank, i); });
    Operation c;
    c.type = call.type;
    c.root = call.root;
    switch (call.type) {
      case OpType::allgather_into_tensor: s.output = tensor(rank, count * ranks_, call.shared); break;
      case OpType::reduce_scatter_tensor:
      case OpType::alltoall_base:
        s.input = tensor(rank, count * ranks_, call.shared);
        s.output = tensor(rank, call.type == OpType::alltoall_base ? count * ranks_ : count, call.shared);
        for (int part = 0; part < ranks_; ++part) {
          fill_with(s.input.slice(0, part * count, (part + 1) * count),
                    [&](std::int64_t i) { return element(rank, i, part); });
        }
        break;
      default: break;
    }
    if (call.type == OpType::send) {  // a ring; the receive has the same size unless one rank mismatches
      Operation message = c;
      message.root = (rank + 1) % ranks_;
      message.tag = call.lane;
      message.inputs = {s.input};
      s.operations.push_back(context.start(std::move(message), 0, timeout));
      message = c;
      message.type = OpType::recv;
      message.root = (rank + ranks_ - 1) % ranks_;
      message.tag = call.lane;
      s.output = tensor(rank, call.count, false);
      message.outputs = {s.output};
      s.operations.push_back(context.start(std::move(message), 0, timeout));
      return s;
    }
    if (call.type != OpType::barrier) {
      if (!works_in_place(c.type)) c.inputs = {s.input};
      c.outputs = {s.output};
    }
    s.operations.push_back(context.start(std::move(c), call.lane, timeout));
    return s;
  }

  // A successful operation has correct values, whatever happened later; an error must match the injected fault.
  void check(int rank) {
    const auto& mine = started_[static_cast<std::size_t>(rank)];
    for (std::size_t n = 0; n < mine.size(); ++n) {
      const Started& s = mine[n];
      const ProgramStep& call = program_[n];
      for (const auto& operation : s.operations) {
        if (!operation->done()) {
          EXPECT_FALSE(is_running(rank));
          return;
        }
        if (operation->exception()) {
          check_error(rank, call, operation->exception());
          if (call.mismatching_rank >= 0 && call.type != OpType::send && !fault_injected_) {
            EXPECT_EQ(first_difference(s.input.slice(0, 0, 1), expected_input(s.input.slice(0, 0, 1), rank)), -1)
                << "the data was changed";
          }
          has_error_ = true;
        }
      }
      if (std::exchange(has_error_, false)) continue;
      if (call.mismatching_rank >= 0 && call.type != OpType::barrier && call.type != OpType::send) {
        ADD_FAILURE() << "call " << n << " on rank " << rank << ": the mismatch was not detected";
      } else {
        check_values(rank, n, call, s);
      }
    }
  }

  void check_values(int rank, std::size_t n, const ProgramStep& call, const Started& s) {
    const auto same = [&](const Tensor& is, const Tensor& expected) {
      EXPECT_EQ(first_difference(is, expected), -1)
          << name(call.type) << " of " << call.count << ", call " << n << " on rank " << rank;
    };
    switch (call.type) {
      case OpType::allreduce: same(s.output, expected_reduction(s.output, ReduceOp::sum, ranks_)); break;
      case OpType::reduce:
        if (rank == call.root) same(s.output, expected_reduction(s.output, ReduceOp::sum, ranks_));
        break;
      case OpType::broadcast: same(s.output, expected_input(s.output, call.root)); break;
      case OpType::reduce_scatter_tensor:
        same(s.output, expected_reduction(s.output, ReduceOp::sum, ranks_, rank));
        break;
      case OpType::allgather_into_tensor:
      case OpType::alltoall_base:
        for (int r = 0; r < ranks_; ++r) {
          const Tensor part = s.output.slice(0, r * call.count, (r + 1) * call.count);
          same(part, expected_input(part, r, call.type == OpType::alltoall_base ? rank : 0));
        }
        break;
      case OpType::send:
        if (call.mismatching_rank < 0) same(s.output, expected_input(s.output, (rank + ranks_ - 1) % ranks_));
        break;
      default: break;
    }
  }

  void check_error(int rank, const ProgramStep& call, const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Mismatch&) {
      EXPECT_GE(call.mismatching_rank, 0) << "mismatch of equal calls";
    } catch (const PeerLost& e) {
      EXPECT_TRUE(fault_ == Fault::kill || fault_ == Fault::leave) << e.what();
      const char* const what = fault_ == Fault::kill ? "died" : "left the group";
      EXPECT_NE(std::string(e.what()).find(fmt::format("rank {} {}", victim_, what)), std::string::npos) << e.what();
    } catch (const Aborted& e) {
      EXPECT_TRUE(fault_injected_) << e.what();
      const bool own = rank == victim_ && (fault_ == Fault::fail || fault_ == Fault::leave);
      EXPECT_TRUE(own || std::string(e.what()).find("failed") != std::string::npos) << e.what();
    } catch (const Timeout& e) {
      EXPECT_EQ(fault_, Fault::stop) << e.what();
    }
  }

  std::mt19937_64 random_;
  const int ranks_;
  const std::shared_ptr<threads::GroupMemory> group_memory_;
  Fault fault_;
  int victim_;
  int fault_at_;
  bool victim_stopped_ = false;
  bool fault_injected_ = false;
  bool has_error_ = false;
  std::vector<ProgramStep> program_;
  std::vector<std::shared_ptr<LocalContext>> contexts_;
  std::vector<std::vector<Started>> started_;
};

TEST(Interleaving, RandomOrdersAndFaultsCompleteOrFailCleanly) {
  const char* const replay = std::getenv("HOOKLINE_SEED");
  const char* const seed_count = std::getenv("HOOKLINE_SEEDS");
  const std::uint64_t first = replay ? std::strtoull(replay, nullptr, 10) : std::random_device{}();
  const std::uint64_t seeds = replay ? 1 : seed_count ? std::strtoull(seed_count, nullptr, 10) : 400;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    Schedule schedule(seed);
    SCOPED_TRACE(fmt::format("HOOKLINE_SEED={}: {}", seed, schedule.describe()));
    schedule.run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hookline::local
