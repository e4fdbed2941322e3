// Tests that a reducer works on a group that supports only allreduce.
#include "reducer/fallback_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

/// Supports only allreduce, optionally inexact.
class OnlyAllreduce final : public GroupDecorator {
 public:
  OnlyAllreduce(std::shared_ptr<ProcessGroup> inner, bool rounds) : GroupDecorator(std::move(inner)), rounds_(rounds) {}
  WorkPtr run(Operation collective) override {
    if (collective.type != OpType::allreduce) throw Unsupported("this group supports only allreduce");
    if (rounds_) collective.outputs[0].fill(0);
    return GroupDecorator::run(std::move(collective));
  }

 private:
  const bool rounds_;
};

TEST(FallbackCollectives, BroadcastAndAllgather) {
  for (const bool native : {true, false}) {
    threads_fixture().spawn(3, [&](ProcessGroup& inner) {
      const auto group =
          native ? inner.shared_from_this() : std::make_shared<OnlyAllreduce>(inner.shared_from_this(), false);
      const Tensor bytes = Tensor::full({5}, 100 + group->rank(), DType::u8);
      reducer::broadcast(*group, bytes, 1)->wait();
      for (int i = 0; i < 5; ++i) EXPECT_EQ(bytes.data<std::uint8_t>()[i], 101);
      const Tensor own = Tensor::full({2}, -7 * group->rank(), DType::i64);
      const Tensor all = Tensor::full({6}, 99, DType::i64);
      reducer::allgather_into_tensor(*group, all, own)->wait();
      for (int i = 0; i < 6; ++i) EXPECT_EQ(all.data<std::int64_t>()[i], -7 * (i / 2));
    });
  }
}

TEST(FallbackCollectives, ReducerWorksWithAllreduceOnly) {
  threads_fixture().spawn(2, [](ProcessGroup& inner) {
    const auto group = std::make_shared<OnlyAllreduce>(inner.shared_from_this(), false);
    std::vector<Parameter> parameters = model(5);
    for (const Parameter& p : parameters) p.tensor.fill(inner.rank() + 1);
    parameters.push_back({"rows", Tensor::zeros({100, 2}), true});
    Reducer reducer(parameters, group, nullptr, {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    EXPECT_EQ(parameters[3].tensor.data<float>()[0], 1.0f) << "rank 0's";
    for (std::uint64_t s = 1; s <= 3; ++s) {
      std::vector<std::int64_t> rows = {4, 10 + inner.rank()};
      reducer.mark_ready("rows", SparseGradient{Tensor::borrow(rows), Tensor::full({2, 2}, 1)});
      step_with_copies(reducer, s, {0, 1, 2, 3, 4});
      EXPECT_EQ(reducer.sparse_gradient("rows").values.numel(), 6);
    }
    EXPECT_EQ(reducer.buckets().back(), ParameterIndices{4}) << "the bucket order was broadcast, too";
    const std::size_t count = inner.rank() == 0 ? 3 : 4;
    EXPECT_THROW(Reducer(model(count), group), Mismatch);
  });
}

TEST(FallbackCollectives, DetectsInexactAllreduce) {
  threads_fixture().spawn(2, [](ProcessGroup& inner) {
    const auto group = std::make_shared<OnlyAllreduce>(inner.shared_from_this(), true);
    try {
      const Reducer reducer(model(3), group);
      FAIL() << "an inexact allreduce was accepted";
    } catch (const Mismatch& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr("must be exact for int64"));
    }
  });
}

}  // namespace
}  // namespace hookline::testing
