// The names of the room optimizer in use: steps, steps while others communicate, and models that are averaged.
// hookline run -n 2 build/dev/examples/example_names_optimizer
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

namespace {

float first(const hl::Tensor& tensor) { return tensor.data<const float>()[0]; }

void optimizers() {
  const hl::Tensor w = hl::Tensor::zeros({4});
  const std::vector<hl::NamedGradient> gradients = {
      {.name = "w", .parameter = w, .gradient = hl::Tensor::full({4}, 1)}};
  hl::SGD sgd(hl::SGDOptions{.lr = 0.5, .momentum = 0.9});
  sgd.step(gradients);
  expect(first(w) == -0.5f && sgd.text() == hl::make_optimizer("sgd(lr=0.5, momentum=0.9)")->text());

  // What it remembers of each parameter, under torch's names; as bytes with save_state.
  const std::map<std::string, hl::ParameterState> state = sgd.state();
  expect(state.at("w").step == 1 && first(state.at("w").tensors.at("momentum_buffer")) == 1);
  hl::SGD resumed;
  hl::load_state(resumed, hl::save_state(sgd));
  expect(resumed.lr() == 0.5);

  const hl::AdamOptions options = {.lr = 0.01};
  for (const hl::OptimizerPtr& adam : {hl::OptimizerPtr(std::make_shared<hl::Adam>(options)),
                                       hl::OptimizerPtr(std::make_shared<hl::AdamW>(options))}) {
    const float before = first(w);
    adam->step(gradients);
    expect(std::abs(before - first(w) - 0.01f) < 1e-3f);
  }
}

/// Parameters are stepped as soon as their bucket is reduced.
void overlapping(const std::shared_ptr<hl::ProcessGroup>& group) {
  const hl::OverlapOptions clipped = {.clip_norm = 1.0};
  const hl::Tensor w = hl::Tensor::zeros({4});
  hl::Reducer reducer({{"w", w}}, group,
                      hl::overlap(hl::make_hook("allreduce", group), hl::make_optimizer("sgd(lr=1)"), clipped));
  reducer.mark_ready("w", hl::Tensor::full({4}, 10));
  reducer.finalize();
  expect(std::abs(first(w) + 0.5f) < 1e-3f);  // four gradients of the norm 1

  // Steps of any other kind.
  const hl::BucketStep sign_descent = [](hl::GradBucket bucket) {
    for (std::size_t i = 0; i < bucket.parameters().size(); ++i) {
      bucket.parameters()[i].fill(first(bucket.gradients()[i]) > 0 ? -1 : 1);
    }
    return hl::Future<void>::ready();
  };
  reducer.replace_hook(hl::overlap(hl::make_hook("allreduce", group), sign_descent, "sign descent"));
  reducer.mark_ready("w", hl::Tensor::full({4}, 10));
  reducer.finalize();
  expect(first(w) == -1);
}

/// Ranks that train on their own, and meet now and then.
void averaging(const std::shared_ptr<hl::ProcessGroup>& group) {
  const int ranks = group->size();
  const hl::Tensor w = hl::Tensor::full({4}, group->rank());
  hl::average_parameters(*group, {w});
  expect(first(w) == float(ranks - 1) / 2);

  const std::vector<hl::HierarchicalModelAverager::Level> levels = {{.period = 2, .group_size = 1},
                                                                    {.period = 4, .group_size = ranks}};
  const std::vector<std::shared_ptr<hl::ModelAverager>> averagers = {
      std::make_shared<hl::PeriodicModelAverager>(2, 0, group),
      std::make_shared<hl::HierarchicalModelAverager>(levels, 0, group),  // nearer ranks more often
  };
  for (const auto& averager : averagers) {
    hl::PostLocalSGDOptimizer optimizer(hl::make_optimizer("sgd(lr=1)"), averager);
    for (int step = 0; step < 5; ++step) {
      optimizer.step({{.name = "w", .parameter = w, .gradient = hl::Tensor::full({4}, group->rank())}});
    }
    expect(averager->step() == 5);
    std::printf("rank %d: %g after five steps\n", group->rank(), double(first(w)));
  }
}

}  // namespace

int main() {
  optimizers();
  const auto group = hl::init_process_group();
  overlapping(group);
  averaging(group);
}
