// Tests wire_bytes for each operation type.
#include "group/wire_bytes.hpp"

#include <gtest/gtest.h>

namespace hookline::group {
namespace {

std::uint64_t sent(OpType type, int ranks, std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
  Operation c;
  c.type = type;
  c.inputs = std::move(inputs);
  c.outputs = std::move(outputs);
  return wire_bytes(c, ranks);
}

TEST(WireBytes, ByOperation) {
  const Tensor t = Tensor::zeros({100});
  EXPECT_EQ(sent(OpType::allreduce, 2, {}, {t}), 400u);
  EXPECT_EQ(sent(OpType::allreduce, 4, {}, {t}), 600u);
  EXPECT_EQ(sent(OpType::allreduce, 1, {}, {t}), 0u);
  EXPECT_EQ(sent(OpType::allgather, 4, {t}, {t, t, t, t}), 1200u);
  EXPECT_EQ(sent(OpType::reduce_scatter_tensor, 4, {t}, {t}), 300u);
  EXPECT_EQ(sent(OpType::alltoall, 2, {t, t}, {t, t}), 400u);
  EXPECT_EQ(sent(OpType::broadcast, 4, {}, {t}), 300u);
  EXPECT_EQ(sent(OpType::gather, 4, {t}, {t, t, t, t}), 300u);
  EXPECT_EQ(sent(OpType::scatter, 4, {t, t, t, t}, {t}), 300u);
  EXPECT_EQ(sent(OpType::send, 4, {t}, {}), 400u);
  EXPECT_EQ(sent(OpType::recv, 4, {}, {t}), 0u);
  EXPECT_EQ(sent(OpType::barrier, 4, {}, {}), 0u);
}

}  // namespace
}  // namespace hookline::group
