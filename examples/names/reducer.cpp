// The names of the rooms bucket and reducer in use: gradients in buckets, and the reducer that has them averaged.
// hookline run -n 2 build/dev/examples/example_names_reducer
#include <cstdio>
#include <memory>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

namespace {

/// Which parameters share a bucket: the last ones first, since their gradients come first.
void plans() {
  const std::vector<hl::PlannedParameter> parameters = {{.bytes = 4000}, {.bytes = 600}, {.bytes = 500, .alone = true}};
  const std::vector<hl::BucketMembers> plan =
      hl::plan_buckets(parameters, hl::BucketLimits{.first = 500, .others = 8000});
  expect(plan.size() == 3);

  // A bucket is a flat buffer and a layout that says whose gradient is where.
  const hl::BucketLayout layout = hl::layout_of({{2, 3}, {2}}, {}, {"w", "b"});
  const hl::GradBucket bucket(0, 1, hl::Tensor::zeros({8}), std::make_shared<hl::BucketLayout>(layout));
  expect(layout.offsets[1] == 6 && bucket.gradients()[0].shape() == hl::Dims{2, 3} && bucket.is_last());
}

void steps(const std::shared_ptr<hl::ProcessGroup>& group) {
  const std::vector<hl::Parameter> parameters = {
      {.name = "table", .tensor = hl::Tensor::zeros({100, 4}), .sparse = true},
      {.name = "w", .tensor = hl::Tensor::zeros({64})}};
  const hl::ReducerOptions options = {.limits = {.first = 1 << 10, .others = 1 << 20}, .mean = hl::Mean::sum};
  hl::Reducer reducer(parameters, group, nullptr, options);

  // A gradient of few rows: here the row that has this rank's number.
  std::vector<std::int64_t> rows = {group->rank()};
  const hl::SparseGradient sparse = {.indices = hl::Tensor::borrow(rows), .values = hl::Tensor::full({1, 4}, 1)};
  const hl::Tensor dense = hl::Tensor::full({64}, 1);
  reducer.mark_ready("w", dense);
  reducer.mark_ready("table", sparse);
  reducer.finalize();
  expect(dense.data<float>()[0] == float(group->size()));
  expect(reducer.sparse_gradient("table").indices.numel() == group->size());

  const hl::StepStats stats = reducer.stats();
  for (const hl::BucketStats& bucket : stats.buckets) {
    std::printf("rank %d, bucket %zu: %zu bytes, done %.1f ms after the first gradient\n", group->rank(), bucket.index,
                bucket.bytes, bucket.done * 1e3);
  }
}

/// Parameters without gradients and buffers, which become rank 0's; and steps numbered by the batch.
void whole_models(const std::shared_ptr<hl::ProcessGroup>& group) {
  const hl::Tensor body = hl::Tensor::full({64}, group->rank());
  const hl::NamedTensor running_mean = {.name = "running_mean", .tensor = hl::Tensor::full({4}, group->rank())};
  const std::vector<hl::Parameter> parameters = {{.name = "body", .tensor = body, .frozen = true},
                                                 {.name = "head", .tensor = hl::Tensor::zeros({8})}};
  const hl::ReducerOptions options = {.buffers = {running_mean}};
  hl::Reducer reducer(parameters, group, nullptr, options);
  expect(body.data<float>()[0] == 0 && running_mean.tensor.data<float>()[0] == 0);
  for (int batch = 0; batch < 2; ++batch) {
    reducer.set_step_id(batch);  // ranks that are at different batches get a Mismatch
    reducer.mark_ready("head", hl::Tensor::full({8}, 1));
    reducer.finalize();
  }
}

/// Ranks that have more or fewer inputs than others.
void uneven_inputs(const std::shared_ptr<hl::ProcessGroup>& group) {
  hl::Reducer reducer({{"w", hl::Tensor::zeros({64})}}, group);
  const hl::JoinOptions options = {.divide_by_initial_world_size = false};
  float last = 0;
  const auto my_steps = [&] {
    for (int step = 0; step <= group->rank(); ++step) {
      const hl::Tensor gradient = hl::Tensor::full({64}, 1);
      reducer.mark_ready("w", gradient);
      reducer.finalize();
      last = gradient.data<float>()[0];
    }
  };
  reducer.join(my_steps, options);
  expect(last == 1);  // a mean of those that still had inputs
}

}  // namespace

int main() {
  plans();
  const auto group = hl::init_process_group();
  // Rank 0's tensors to all, in pieces of at most so many bytes; a reducer does it with its parameters.
  const std::vector<hl::Tensor> tensors = {hl::Tensor::full({3}, group->rank()), hl::Tensor::full({2}, group->rank())};
  hl::broadcast_coalesced(*group, tensors, hl::kBroadcastBytes, 0);
  expect(tensors[1].data<float>()[1] == 0);
  steps(group);
  whole_models(group);
  uneven_inputs(group);
}
