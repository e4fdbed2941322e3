// Contract of process groups: concurrent operations, lanes, futures, invalid arguments and subgroups.
#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "contract/group_contract.hpp"

namespace hookline::testing {
namespace {

class GroupBehaviour : public GroupContract {};

TEST_P(GroupBehaviour, ManyOperationsInFlight) {
  GetParam().spawn(3, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 40; ++i) {
      tensors.push_back(
          make_tensor(group, i % 3 == 0 ? 100'000 : 50, DType::f32, i % 2 ? Layout::plain : Layout::shared));
      fill(tensors.back(), group.rank(), i);
      works.push_back(group.allreduce(tensors.back()));
    }
    for (std::size_t i = works.size(); i-- > 0;) {
      works[i]->wait();
      expect(tensors[i], expected_reduction(tensors[i], ReduceOp::sum, 3, static_cast<int>(i)),
             "number " + std::to_string(i));
    }
  });
}

TEST_P(GroupBehaviour, MessagesOfOneTagStayInOrder) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    // More messages than mailboxes; every fifth message has several chunks, the others have one.
    const auto count = [](int i) { return i % 5 == 0 ? 100'000 : 3 + i; };
    std::vector<WorkPtr> works;
    for (int i = 0; i < 30; ++i) {
      const Tensor t = Tensor::full({count(i)}, i);
      if (group.rank() == 0) {
        works.push_back(group.send(t, 1));
      } else {
        t.fill(-1);
        group.recv(t, 0)->wait();
        if (t.data<float>()[count(i) - 1] != static_cast<float>(i))
          throw std::runtime_error("message " + std::to_string(i));
      }
    }
    for (const WorkPtr& work : works) work->wait();
  });
}

TEST_P(GroupBehaviour, LanesMatchInAnyOrder) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const int lanes = group.capabilities().lanes;
    std::mt19937 random(static_cast<unsigned>(group.rank()));
    for (int round = 0; round < 20; ++round) {
      std::vector<int> order(static_cast<std::size_t>(lanes));
      for (int i = 0; i < lanes; ++i) order[static_cast<std::size_t>(i)] = i;
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Tensor> tensors(order.size());
      std::vector<WorkPtr> works(order.size());
      for (const int lane : order) {
        const ContextScope scope({.lane = lane});
        const auto i = static_cast<std::size_t>(lane);
        tensors[i] = make_tensor(group, 30'000 * (lane % 2) + 10, DType::f32, Layout::plain);
        fill(tensors[i], group.rank(), lane);
        works[i] = group.allreduce(tensors[i]);
      }
      for (const int lane : order) {
        const auto i = static_cast<std::size_t>(lane);
        works[i]->wait();
        expect(tensors[i], expected_reduction(tensors[i], ReduceOp::sum, 2, lane), "lane " + std::to_string(lane));
      }
    }
  });
}

TEST_P(GroupBehaviour, FuturesCompleteWithoutWait) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    for (const std::int64_t count : {10, 200'000}) {
      const Tensor t = make_tensor(group, count, DType::f32, Layout::plain);
      fill(t, group.rank());
      const Future<float> first = group.allreduce(t)->get_future().then(
          [](const Future<std::vector<Tensor>>& f) { return f.value()[0].data<const float>()[0]; });
      if (first.wait(Milliseconds(20'000)) != expected_reduction(t, ReduceOp::sum, 2).data<const float>()[0]) {
        throw std::runtime_error("the continuation saw another value");
      }
    }
  });
}

Future<double> twice(ProcessGroup& group, Tensor t) {
  co_await group.allreduce(t, {.op = ReduceOp::avg});
  const Tensor norm = Tensor::full({1}, t.data<const float>()[0]);
  co_await group.allreduce(norm, {.op = ReduceOp::max});
  co_return norm.item<double>();
}

TEST_P(GroupBehaviour, LargeOperationsCompleteWithoutWait) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    for (int round = 0; round < 3; ++round) {
      const Tensor t = make_tensor(group, 100'000, DType::f32, round % 2 ? Layout::plain : Layout::shared);
      fill(t, group.rank(), round);
      Promise<void> over;
      const Future<void> done = over.get_future();
      const WorkPtr work = group.allreduce(t);
      work->on_complete([&] { over.set_value(); }, Urgency::low);
      done.wait(std::chrono::seconds(20));
      expect(t, expected_reduction(t, ReduceOp::sum, 2, round), "round " + std::to_string(round));
      // Runs small operations for 10 ms. They do not use the progress thread, so it blocks before the next round.
      const Tensor stop = Tensor::zeros({1});
      for (const auto end = Clock::now() + Milliseconds(10); stop.item<float>() == 0;) {
        stop.fill(group.rank() == 0 && Clock::now() > end ? 1 : 0);
        group.broadcast(stop)->wait();
      }
    }
  });
}

TEST_P(GroupBehaviour, CoroutinesAwaitWorks) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const Tensor t = Tensor::full({100'000}, group.rank() + 1);
    if (twice(group, t).wait(Milliseconds(20'000)) != 1.5) throw std::runtime_error("wrong mean");
  });
}

TEST_P(GroupBehaviour, RejectsInvalidArguments) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const Tensor t = Tensor::zeros({4});
    const Tensor bits = Tensor::zeros({4}, DType::i32);
    EXPECT_THROW((void)group.allreduce(t, {.op = ReduceOp::bxor}), InvalidArgument);
    EXPECT_THROW((void)group.allreduce(std::vector<Tensor>{}), InvalidArgument);
    EXPECT_THROW((void)group.allreduce_coalesced({t, bits}), InvalidArgument);
    EXPECT_THROW((void)group.allreduce(t.as_read_only()), InvalidArgument);
    EXPECT_THROW((void)group.broadcast(t, {.root = 2}), InvalidArgument);
    EXPECT_THROW((void)group.reduce(t, {.root = -1}), InvalidArgument);
    EXPECT_THROW((void)group.allgather({t}, t), InvalidArgument);
    EXPECT_THROW((void)group.allgather({Tensor::zeros({4}), t}, t.slice(0, 1, 3)), InvalidArgument);
    EXPECT_THROW((void)group.allgather_into_tensor(t, t.slice(0, 1, 3)), InvalidArgument) << "overlaps";
    EXPECT_THROW((void)group.allgather_into_tensor(Tensor::zeros({7}), t), InvalidArgument);
    const Tensor wide = Tensor::zeros({16});
    EXPECT_THROW((void)group.allgather_into_tensor(wide.slice(0, 0, 16, 2), wide.slice(0, 2, 6)), InvalidArgument);
    const Tensor rows = Tensor::zeros({2, 8});
    EXPECT_THROW((void)group.allgather_into_tensor(rows.slice(1, 0, 6), rows.slice(1, 0, 3)), InvalidArgument)
        << "overlaps with other strides than its slice of the output";
    const Tensor repeated = Tensor::wrap(t.mutable_bytes(), {4}, DType::f32, {.strides = Dims{0}});
    EXPECT_THROW((void)group.allreduce(repeated), InvalidArgument) << "all elements share one address";
    EXPECT_THROW((void)group.reduce_scatter(t, {t, t}), InvalidArgument) << "also the input for the other rank";
    const int me = group.rank();
    EXPECT_THAT([&] { (void)group.reduce_scatter_tensor(t.slice(0, 1, 3), t); },
                ::testing::ThrowsMessage<InvalidArgument>(
                    ::testing::AllOf(::testing::HasSubstr("reduce_scatter_tensor on rank " + std::to_string(me) +
                                                          " of 2: output 0 overlaps "
                                                          "input 0: expected separate memory, or slice"),
                                     ::testing::HasSubstr("Pass a copy"))));
    EXPECT_THROW((void)group.reduce_scatter_tensor(slice_of(t, 1 - me, 2), t), InvalidArgument)
        << "the other rank's slice";
    EXPECT_THROW((void)group.reduce_scatter_tensor_coalesced({slice_of(t, me, 2), Tensor::zeros({2})}, {t, t}),
                 InvalidArgument)
        << "in place in an input that is passed twice";
    EXPECT_THROW((void)group.reduce_scatter(wide.slice(0, 0, 4), {wide.slice(0, 0, 8, 2), wide.slice(0, 0, 8, 2)}),
                 InvalidArgument)
        << "in place with other strides";
    EXPECT_THROW(
        (void)group.scatter(t, {me == 0 ? Tensor::zeros({4}) : t, me == 0 ? t : Tensor::zeros({4})}, {.root = me}),
        InvalidArgument)
        << "the other rank's block";
    EXPECT_THROW((void)group.scatter(t, {t}, {.root = group.rank()}), InvalidArgument);
    EXPECT_THROW((void)group.gather({t}, t, {.root = 1 - group.rank()}), InvalidArgument);
    EXPECT_THROW((void)group.alltoall_base(Tensor::zeros({4}), t, {1, 2}, {}), InvalidArgument);
    EXPECT_THROW((void)group.alltoall_base(Tensor::zeros({4}), t, {}, {5, -1}), InvalidArgument);
    EXPECT_THROW((void)group.send(t, group.rank()), InvalidArgument);
    EXPECT_THROW((void)group.recv(t, 2), InvalidArgument);
    EXPECT_THROW(group.set_timeout(Milliseconds(0)), InvalidArgument);
    group.barrier()->wait();
  });
}

TEST_P(GroupBehaviour, RejectsRecvAnysourceWithoutPeers) {
  GetParam().spawn(
      1, [](ProcessGroup& group) { EXPECT_THROW((void)group.recv_anysource(Tensor::zeros({1})), InvalidArgument); });
}

TEST_P(GroupBehaviour, SendersMayUseReadOnlyTensorsOfAnyLayout) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const Tensor source = Tensor::full({8}, 3).slice(0, 0, 8, 2);
    const Tensor target = Tensor::full({4}, 1);
    const bool is_sender = group.rank() == 0;
    group.broadcast(is_sender ? source.as_read_only() : target, {.root = 0})->wait();
    EXPECT_EQ(target.data<float>()[3], is_sender ? 1 : 3);
    group.reduce(is_sender ? source.as_read_only() : target, {.root = 1})->wait();
    EXPECT_EQ(target.data<float>()[3], is_sender ? 1 : 6);
  });
}

TEST_P(GroupBehaviour, UnmatchedReceiveTimesOut) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    group.barrier()->wait();
    const Tensor t = Tensor::zeros({10});
    if (group.rank() == 0) {
      EXPECT_THROW(group.recv(t, 1, {.timeout = Milliseconds(50)})->wait(), Timeout);
    } else {
      // Rank 1 stays in the group until the failure of rank 0 is reported.
      EXPECT_THROW(group.recv(t, 0)->wait(), Error);
    }
  });
}

TEST_P(GroupBehaviour, AbortedGroupStartsNothing) {
  GetParam().spawn(1, [](ProcessGroup& group) {
    group.barrier()->wait();
    group.abort("test abort");
    for (int call = 0; call < 2; ++call) {
      EXPECT_THAT([&] { group.barrier()->wait(); },
                  ::testing::ThrowsMessage<Aborted>(::testing::HasSubstr("test abort")));
    }
  });
}

TEST_P(GroupBehaviour, SubgroupsAndSplits) {
  GetParam().spawn(4, [subgroups = GetParam().subgroups](ProcessGroup& group) {
    if (!subgroups) {
      const auto names_both =
          ::testing::AllOf(::testing::HasSubstr("new_group"), ::testing::HasSubstr(group.backend_name()));
      EXPECT_THAT([&] { (void)group.new_group({3, 1}); }, ::testing::ThrowsMessage<Unsupported>(names_both));
      EXPECT_THAT([&] { (void)group.split(0, 0); }, ::testing::ThrowsMessage<Unsupported>(names_both));
      return;
    }
    const auto odd = group.new_group({3, 1});
    EXPECT_EQ(odd != nullptr, group.rank() % 2 == 1);
    if (odd) {
      EXPECT_EQ(odd->rank(), group.rank() == 3 ? 0 : 1);
      const Tensor t = Tensor::full({10'000}, group.rank());
      odd->allreduce(t)->wait();
      EXPECT_EQ(t.data<float>()[9'999], 4.0f);
    }
    const auto half = group.split(group.rank() / 2, -group.rank());
    ASSERT_TRUE(half);
    EXPECT_EQ(half->size(), 2);
    EXPECT_EQ(half->rank(), 1 - group.rank() % 2) << "ordered by key";
    half->barrier()->wait();
    group.barrier()->wait();
    EXPECT_THROW((void)group.new_group({0, 0}), InvalidArgument);
    EXPECT_THROW((void)group.new_group({4}), InvalidArgument);
  });
}

// Each group numbers its own subgroups.
TEST_P(GroupBehaviour, SubgroupsHaveSubgroups) {
  if (!GetParam().subgroups) return;
  GetParam().spawn(4, [](ProcessGroup& group) {
    const auto reversed = group.new_group({3, 2, 1, 0});
    const auto again = reversed->new_group({3, 2, 1, 0});
    EXPECT_EQ(again->rank(), group.rank());
    const auto pair = again->split(again->rank() % 2, 0);
    const auto alone = pair->split(pair->rank(), 0);
    EXPECT_EQ(alone->size(), 1);
    for (const auto& subgroup : {reversed, again, pair}) {
      const Tensor t = Tensor::full({10'000}, group.rank() + 1);
      subgroup->allreduce(t)->wait();
      const int sum = subgroup->size() == 4 ? 10 : group.rank() % 2 == 0 ? 1 + 3 : 2 + 4;
      EXPECT_EQ(t.data<float>()[9'999], static_cast<float>(sum));
    }
  });
}

TEST_P(GroupBehaviour, WorkMetadata) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const std::uint64_t before = group.sequence_number();
    const Tensor t = Tensor::zeros({3});
    const WorkPtr work = group.broadcast(t);
    work->wait(Milliseconds(20'000));
    EXPECT_TRUE(work->is_completed());
    EXPECT_TRUE(work->is_success());
    EXPECT_EQ(work->exception(), nullptr);
    EXPECT_EQ(work->op_type(), OpType::broadcast);
    EXPECT_EQ(work->sequence_number(), before + 1);
    EXPECT_EQ(work->result().at(0).bytes(), t.bytes());
    EXPECT_GE(work->time_finished(), work->time_started());
    EXPECT_EQ(work->source_rank(), -1);
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GroupBehaviour, ::testing::ValuesIn(group_fixtures()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
