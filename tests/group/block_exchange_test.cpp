// Tests BlockExchange: compressed reductions on groups that support only some operations.
#include "group/block_exchange.hpp"

#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/compressed.hpp>
#include <hookline/group/decorator.hpp>

#include "harness/spawn.hpp"

namespace hookline::group {
namespace {

using namespace std::chrono_literals;
using testing::require;

/// A group that supports only the given operations and has no zero_copy_reads, like a user's group.
class RestrictedGroup final : public GroupDecorator {
 public:
  RestrictedGroup(std::shared_ptr<ProcessGroup> inner, std::set<OpType> supported)
      : GroupDecorator(std::move(inner)), supported_(std::move(supported)) {}
  Capabilities capabilities() const override { return {}; }
  WorkPtr run(Operation collective) override {
    if (!supported_.contains(collective.type)) throw Unsupported("not supported by this group");
    return inner()->run(std::move(collective));
  }

 private:
  const std::set<OpType> supported_;
};

const std::vector<std::set<OpType>> kGroups = {{OpType::allgather_into_tensor, OpType::alltoall_base},
                                               {OpType::allgather_into_tensor},
                                               {OpType::allgather, OpType::allreduce},
                                               {OpType::allreduce}};

Tensor filled(int rank) {
  const Tensor t = Tensor::empty({40'000});
  for (int i = 0; i < 40'000; ++i) t.data<float>()[i] = static_cast<float>((i * 37 + rank * 11) % 101) / 7.0F;
  return t;
}

TEST(BlockExchange, SameBitsWithEverySetOfOperations) {
  for (const int ranks : {1, 2, 3}) {
    testing::threads_fixture().spawn(ranks, [&](ProcessGroup& group) {
      for (const std::string codec : {"fp16", "int8(block=tensor)", "int8(block=100, range=symmetric)",
                                      "int4(block=64, range=affine, rounding=stochastic)"}) {
        const Tensor direct = filled(group.rank());
        group.allreduce(direct, make_codec(codec))->wait(30s);
        std::uint64_t least = 0;
        for (const std::set<OpType>& has : kGroups) {
          const auto other = std::make_shared<RestrictedGroup>(group.shared_from_this(), has);
          CompressedReduction reduction(other, make_codec(codec));
          const Tensor t = filled(group.rank());
          reduction.allreduce(t).wait(30s);
          require(std::memcmp(direct.bytes(), t.bytes(), t.nbytes()) == 0, codec);
          require(reduction.stats().bytes_sent >= least, "a fallback must not send less");
          least = reduction.stats().bytes_sent;
        }
        require(ranks == 1 || least > 0, "no sent bytes were counted");
      }
    });
  }
}

TEST(BlockExchange, ThrowsUnsupportedWithoutAnyOperation) {
  testing::threads_fixture().spawn(2, [&](ProcessGroup& group) {
    RestrictedGroup none(group.shared_from_this(), {});
    const Tensor bytes = Tensor::zeros({8}, DType::u8);
    EXPECT_THROW(BlockExchange::allgather(none, bytes, std::nullopt), Unsupported);
    EXPECT_THROW(BlockExchange::alltoall(none, bytes, std::nullopt), Unsupported);
  });
}

}  // namespace
}  // namespace hookline::group
