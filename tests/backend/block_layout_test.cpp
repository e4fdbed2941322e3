// Non-contiguous tensors, which are staged in contiguous copies.
#include "backend/block_layout.hpp"

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "harness/spawn.hpp"

namespace hookline::backend {
namespace {

using hookline::testing::require;

class StridedTensors : public ::testing::TestWithParam<hookline::testing::GroupFixture> {};

void expect_sequential_results(ProcessGroup& group, std::int64_t rows) {
  const Tensor wide = Tensor::full({rows, 4}, 1);
  const Tensor columns = wide.slice(1, 0, 4, 2);
  const Tensor word = Tensor::zeros({1});
  if (group.rank() != 0) group.recv(word, 0)->wait();  // delays the first allreduce until rank 0 has started both
  const WorkPtr first = group.allreduce(columns);
  const WorkPtr second = group.allreduce(columns);
  if (group.rank() == 0) {
    for (int r = 1; r < group.size(); ++r) group.send(word, r)->wait();
  }
  second->wait();
  require(columns.contiguous().data<float>()[rows] == static_cast<float>(group.size() * group.size()), "the sum");
  require(wide.data<float>()[1] == 1, "an element between the columns");
  first->wait();
}

TEST_P(StridedTensors, ArePackedWhenTheOperationStarts) {
  GetParam().spawn(4, [](ProcessGroup& group) { expect_sequential_results(group, 50'000); });
}

// The input has the same start address and strides as this rank's output, but another shape.
TEST_P(StridedTensors, OverlappingShapesAreRejected) {
  GetParam().spawn(4, [](ProcessGroup& group) {
    const Tensor table = Tensor::zeros({4, 4});
    std::vector<Tensor> outputs(4);
    for (Tensor& output : outputs) output = Tensor::zeros({2, 3});
    outputs[static_cast<std::size_t>(group.rank())] = table.slice(0, 0, 2).slice(1, 0, 3);
    EXPECT_THAT([&] { (void)group.allgather(outputs, table.slice(0, 0, 3).slice(1, 0, 2)); },
                ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("overlaps input 0")));
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, StridedTensors,
                         ::testing::Values(hookline::testing::threads_fixture(),
                                           hookline::testing::private_threads_fixture(),
                                           hookline::testing::shm_fixture(),
                                           hookline::testing::memory_transport_fixture(),
                                           hookline::testing::hierarchical_threads_fixture(),
                                           hookline::testing::hierarchical_hosts_fixture()),
                         [](const auto& fixture) { return fixture.param.name; });

// Small tensors are copied inline into the slot when the operation is posted.
TEST(SmallStridedTensors, ArePackedWhenTheOperationStarts) {
  for (const auto& fixture : {hookline::testing::threads_fixture(), hookline::testing::shm_fixture(),
                              hookline::testing::hierarchical_threads_fixture()}) {
    SCOPED_TRACE(fixture.name);
    fixture.spawn(4, [](ProcessGroup& group) { expect_sequential_results(group, 10); });
  }
}

}  // namespace
}  // namespace hookline::backend
