// Tests check_arguments with operations that the named methods of ProcessGroup cannot build.
#include <hookline/group/arguments.hpp>

#include <limits>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

TEST(Arguments, RejectsListsOfWrongLength) {
  const Tensor t = Tensor::zeros({4});
  const auto expect_refused = [](OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
    Operation c;
    c.type = type;
    c.inputs = std::move(inputs);
    c.outputs = std::move(outputs);
    c.root = type == OpType::send || type == OpType::recv ? 1 : 0;
    EXPECT_THAT([&] { check_arguments(c, 0, 2); },
                ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("expected")))
        << name(type) << " of " << c.inputs.size() << " to " << c.outputs.size();
  };
  expect_refused(OpType::gather, {}, {t, t});
  expect_refused(OpType::scatter, {t, t}, {});
  expect_refused(OpType::reduce_scatter, {t, t}, {});
  expect_refused(OpType::alltoall_base, {}, {t});
  expect_refused(OpType::alltoall_base, {t}, {});
  expect_refused(OpType::send, {}, {t});
  expect_refused(OpType::send, {t, t}, {});
  expect_refused(OpType::recv, {t}, {});
  expect_refused(OpType::recv_anysource, {t}, {});
}

TEST(Arguments, RejectsSplitsWhoseSumOverflows) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  Operation c;
  c.type = OpType::alltoall_base;
  c.inputs = {Tensor::zeros({4})};
  c.outputs = {Tensor::zeros({4})};
  c.output_splits = {1, 2, 1};
  c.input_splits = {most, most, 6};
  EXPECT_THROW(check_arguments(c, 0, 3), InvalidArgument);
  c.input_splits = {0, 4, 0};
  EXPECT_NO_THROW(check_arguments(c, 0, 3));
}

}  // namespace
}  // namespace hookline
