// Failures in one sub-backend of a hierarchical group: chunks in flight between hosts, and messages between ranks.
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include <hookline/backend/threads.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/process_group.hpp>

#include "backend/hierarchical/make_hierarchical.hpp"
#include "harness/spawn.hpp"

namespace hookline::hierarchical {
namespace {

constexpr Milliseconds kTimeout = std::chrono::seconds(30);

// Forwards to another backend; subclasses change start().
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  WorkPtr start(Operation&& collective, int lane, Milliseconds timeout) override {
    return inner_->start(std::move(collective), lane, timeout);
  }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  std::shared_ptr<Backend> new_subgroup(const std::vector<int>& ranks, const std::string& name,
                                        Milliseconds timeout) override {
    return inner_->new_subgroup(ranks, name, timeout);
  }
  void abort(const std::string& cause) override { inner_->abort(cause); }
  void shutdown() override { inner_->shutdown(); }
  std::exception_ptr error() const override { return inner_->error(); }

 private:
  const std::shared_ptr<Backend> inner_;
};

// Fails the second chunk.
class RejectingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  WorkPtr start(Operation&& collective, int lane, Milliseconds timeout) override {
    if (collective.type == OpType::reduce_scatter_tensor && ++pieces_ == 2) throw ResourceError("injected failure");
    return ForwardingBackend::start(std::move(collective), lane, timeout);
  }

 private:
  int pieces_ = 0;
};

// Completes, and stops accessing the tensors, only on the thread that waits for it.
class WaitDrivenWork final : public Work {
 public:
  WaitDrivenWork(std::shared_future<void> aborted, bool& writes) : aborted_(std::move(aborted)), writes_(writes) {
    writes_ = true;
  }
  void wait(std::optional<Milliseconds>) override {
    aborted_.wait();
    writes_ = false;
    throw Aborted("aborted");
  }
  Future<std::vector<Tensor>> get_future() override { throw Unsupported("get_future"); }
  bool is_completed() override { return !writes_; }
  std::exception_ptr exception() override { return nullptr; }
  std::vector<Tensor> result() override { return {}; }
  OpType op_type() const override { return OpType::allreduce; }
  std::uint64_t sequence_number() const override { return 0; }
  Clock::time_point time_started() const override { return {}; }
  Clock::time_point time_finished() const override { return {}; }

 private:
  const std::shared_future<void> aborted_;
  bool& writes_;
};

class DelayedAbortBackend final : public ForwardingBackend {
 public:
  DelayedAbortBackend(std::shared_ptr<Backend> inner, bool& writes)
      : ForwardingBackend(std::move(inner)), writes_(writes) {}
  WorkPtr start(Operation&& collective, int lane, Milliseconds timeout) override {
    if (collective.type != OpType::allreduce) return ForwardingBackend::start(std::move(collective), lane, timeout);
    return std::make_shared<WaitDrivenWork>(aborted_, writes_);
  }
  void abort(const std::string& cause) override {
    abort_.set_value();
    ForwardingBackend::abort(cause);
  }

 private:
  std::promise<void> abort_;
  const std::shared_future<void> aborted_ = abort_.get_future().share();
  bool& writes_;
};

TEST(HierarchicalFailure, TensorsAreUntouchedAfterFailure) {
  const auto global_backends = make_threads_backends(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      bool writes = false;
      const auto all = global_backends[static_cast<std::size_t>(rank)];
      const MakeSubBackend inside = [&](const std::vector<int>& ranks, const std::string& name,
                                        Milliseconds timeout) -> std::shared_ptr<Backend> {
        auto part = all->new_subgroup(ranks, name, timeout);
        if (rank != 0) return part;
        return std::make_shared<RejectingBackend>(std::move(part));
      };
      const MakeSubBackend between = [&](const std::vector<int>& ranks, const std::string& name,
                                         Milliseconds timeout) -> std::shared_ptr<Backend> {
        auto part = all->new_subgroup(ranks, name, timeout);
        if (rank != 0 || name != "slice0") return part;
        return std::make_shared<DelayedAbortBackend>(std::move(part), writes);
      };
      const auto group = make_group(
          make_hierarchical(make_topology({"a", "a", "b", "b"}, rank), rank, {inside, between}, kTimeout), kTimeout);
      const Tensor large = Tensor::zeros({8 << 20});
      EXPECT_ANY_THROW(group->allreduce(large)->wait());
      EXPECT_FALSE(writes);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class E>
std::string text_of(const WorkPtr& work) {
  try {
    work->wait();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "it did not fail";
  return "";
}

TEST(HierarchicalFailure, P2PErrorsNameTheWholeGroup) {
  testing::hierarchical_threads_fixture().spawn(4, [](ProcessGroup& group) {
    if (group.rank() == 1) {
      group.barrier()->wait();
      group.abort("the batch was bad");
      return;
    }
    const Tensor t = Tensor::zeros({1});
    const WorkPtr pending = group.recv(t, 1);
    group.barrier()->wait();
    const std::string text = text_of<Aborted>(pending);
    EXPECT_TRUE(text.ends_with("rank 1 aborted the hierarchical group: the batch was bad")) << text;
    EXPECT_EQ(text.find("in the hierarchical group: "), std::string::npos) << text;
    EXPECT_EQ(text_of<Aborted>(group.recv(t, 1)), text_of<Aborted>(group.allreduce(t)));
    EXPECT_THROW(pending->get_future().wait(kTimeout), Aborted);
  });
}

TEST(HierarchicalFailure, OneRankPerHostReportsTransportErrors) {
  testing::hierarchical_hosts_fixture().spawn(3, [](ProcessGroup& group) {
    group.barrier()->wait();
    if (group.rank() == 1) return group.abort("the batch was bad");
    const std::string text = text_of<Aborted>(group.recv(Tensor::zeros({1}), 1));
    EXPECT_TRUE(text.ends_with(": the batch was bad")) << text;
    EXPECT_EQ(text.find("in the hierarchical group: "), std::string::npos) << text;
  });
}

TEST(HierarchicalFailure, P2PReportsLostPeer) {
  testing::hierarchical_threads_fixture().spawn(4, [](ProcessGroup& group) {
    const Tensor t = Tensor::zeros({1});
    const WorkPtr pending = group.rank() == 3 ? group.recv(t, 0) : nullptr;
    group.barrier()->wait();
    if (group.rank() == 2) return group.shutdown();  // on rank 0's host
    if (pending) {
      EXPECT_NE(text_of<PeerLost>(pending).find("rank 2"), std::string::npos);
    }
    EXPECT_NE(text_of<PeerLost>(group.allreduce(t)).find("rank 2"), std::string::npos);
  });
}

}  // namespace
}  // namespace hookline::hierarchical
