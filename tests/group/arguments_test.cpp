// Calls that cannot be right, as an implementation of a group may be handed them: the named methods make none of these.
#include <hookline/group/arguments.hpp>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

TEST(Arguments, ListsOfTheWrongLengthAreRefused) {
  const Tensor t = Tensor::zeros({4});
  const auto expect_refused = [](OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
    Collective c;
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

}  // namespace
}  // namespace hookline
