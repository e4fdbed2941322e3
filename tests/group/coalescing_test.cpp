// Tests coalescing on native groups and wrappers.
#include <hookline/group/coalescing.hpp>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/group/collective_checks.hpp>
#include <hookline/group/cross_check.hpp>
#include <hookline/group/decorator.hpp>
#include <hookline/store/memory_store.hpp>

#include "group/rank_threads.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;
using testing::Groups;
using testing::make_thread_groups;
using testing::on_ranks;

class PassThroughGroup final : public GroupDecorator {
 public:
  using GroupDecorator::GroupDecorator;
};

TEST(Coalescing, OneWorkOnEveryKindOfGroup) {
  const auto store = std::make_shared<MemoryStore>();
  const Groups plain = make_thread_groups(2);
  std::vector<Groups> kinds(4);
  const Groups others = make_thread_groups(2);
  for (std::size_t r = 0; r < 2; ++r) {
    kinds[0].push_back(plain[r]);
    kinds[1].push_back(std::make_shared<PassThroughGroup>(plain[r]));
    kinds[2].push_back(with_collective_checks(plain[r], store));
    kinds[3].push_back(with_cross_check(plain[r], others[r]));
  }
  for (const Groups& groups : kinds) {
    const auto errors = on_ranks(groups, [](ProcessGroup& g, int rank) {
      Tensor a = Tensor::full({4}, 1);
      Tensor b = Tensor::full({3}, rank);
      Tensor outside = Tensor::full({2}, 1);
      const auto before = g.allreduce(outside);
      g.start_coalescing();
      const auto own = g.allreduce(a);
      (void)g.broadcast(b, {.root = 1});
      const WorkPtr all = g.end_coalescing();
      all->wait(20s);
      EXPECT_TRUE(own->is_completed());
      EXPECT_TRUE(all->is_success());
      EXPECT_EQ(a.slice(0, 3, 4).item<int>(), 2);
      EXPECT_EQ(b.slice(0, 2, 3).item<int>(), 1);
      ASSERT_EQ(all->result().size(), 2u);
      EXPECT_EQ(all->get_future().wait(20s)[1].numel(), 3);
      EXPECT_EQ(all->op_type(), OpType::broadcast);
      EXPECT_EQ(all->sequence_number(), g.sequence_number());
      EXPECT_LE(all->time_started(), all->time_finished());
      before->wait(20s);
      EXPECT_THROW((void)g.end_coalescing(), InvalidArgument);
      g.start_coalescing();
      EXPECT_THROW(g.start_coalescing(), InvalidArgument);
      const WorkPtr nothing = g.end_coalescing();
      nothing->wait(1s);
      EXPECT_TRUE(nothing->is_success());
      EXPECT_TRUE(nothing->get_future().wait(1s).empty());
    });
    EXPECT_EQ(errors, (std::vector<std::string>(2)));
  }
}

/// A Work that fails and records whether wait() was called.
class FailingWork final : public Work {
 public:
  void wait(std::optional<Milliseconds>) override {
    waited = true;
    throw Mismatch("noted");
  }
  Future<std::vector<Tensor>> get_future() override { return Future<std::vector<Tensor>>::ready({}); }
  bool is_completed() override { return true; }
  std::exception_ptr exception() override { return nullptr; }
  std::vector<Tensor> result() override { return {}; }
  OpType op_type() const override { return OpType::barrier; }
  std::uint64_t sequence_number() const override { return 1; }
  Clock::time_point time_started() const override { return {}; }
  Clock::time_point time_finished() const override { return {}; }
  bool waited = false;
};

TEST(Coalescing, WaitsForAllWorksAfterAFailure) {
  const std::vector<std::shared_ptr<FailingWork>> works = {std::make_shared<FailingWork>(),
                                                           std::make_shared<FailingWork>()};
  Coalescing coalescing;
  coalescing.start();
  for (const auto& work : works) coalescing.add(work);
  EXPECT_THROW(coalescing.end()->wait(1s), Mismatch);
  EXPECT_TRUE(works[0]->waited);
  EXPECT_TRUE(works[1]->waited);
}

TEST(Coalescing, InterruptEndsWait) {
  const Groups groups = make_thread_groups(2);
  std::vector<Tensor> tensors(6);
  for (Tensor& t : tensors) t = Tensor::full({4}, 1);
  groups[0]->start_coalescing();
  for (std::size_t i = 0; i < 3; ++i) (void)groups[0]->allreduce(tensors[i]);
  const WorkPtr all = groups[0]->end_coalescing();
  {
    static bool once = false;
    const InterruptScope scope([] {
      if (!std::exchange(once, true)) throw std::runtime_error("interrupted");
    });
    EXPECT_THROW(all->wait(), std::runtime_error);
  }
  EXPECT_FALSE(all->is_completed());
  for (std::size_t i = 3; i < 6; ++i) groups[1]->allreduce(tensors[i])->wait(20s);
  all->wait(20s);
  EXPECT_EQ(tensors[2].slice(0, 0, 1).item<int>(), 2);
}

TEST(Coalescing, FailsWithFirstError) {
  Promise<std::vector<Tensor>> one, two, three;
  Coalescing coalescing;
  coalescing.add(make_work(Future<std::vector<Tensor>>::ready({}), OpType::barrier));  // ignored: not active yet
  coalescing.start();
  EXPECT_TRUE(coalescing.active());
  for (const auto* promise : {&one, &two, &three})
    coalescing.add(make_work(promise->get_future(), OpType::allreduce, 3));
  const WorkPtr all = coalescing.end();
  EXPECT_FALSE(coalescing.active());
  two.set_error(std::make_exception_ptr(Mismatch("two")));
  EXPECT_FALSE(all->is_completed());
  EXPECT_EQ(all->exception(), nullptr) << "other works are still running";
  EXPECT_THROW(all->wait(1ms), Timeout);
  one.set_value({Tensor::full({1}, 1)});
  EXPECT_FALSE(all->is_completed());
  three.set_error(std::make_exception_ptr(Aborted("three")));
  EXPECT_TRUE(all->is_completed());
  EXPECT_FALSE(all->is_success());
  EXPECT_THROW(all->wait(1s), Mismatch);
  EXPECT_THROW(all->get_future().wait(1s), Mismatch);
  EXPECT_THROW(std::rethrow_exception(all->exception()), Mismatch);
}

/// A group that implements only the pure virtual methods.
class MinimalGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string backend_name() const override { return "minimal"; }
  WorkPtr run(Operation c) override { return make_work(Future<std::vector<Tensor>>::ready(c.outputs), c.type); }
};

TEST(Coalescing, ThrowsUnsupportedWithoutCoalescing) {
  MinimalGroup group;
  EXPECT_THROW(group.start_coalescing(), Unsupported);
  EXPECT_THROW((void)group.end_coalescing(), Unsupported);
  EXPECT_EQ(group.group_name(), "minimal");
  EXPECT_EQ(group.description(), "minimal group, rank 0 of 1");
}

}  // namespace
}  // namespace hookline
