// A communication hook with two collectives, written as a coroutine.
//
//   hookline run -n 2 build/dev/examples/example_mean_then_clip
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include <hookline/hookline.hpp>
namespace hl = hookline;

// The mean of the gradients, scaled down where its norm is above 1.
hl::Future<hl::Tensor> mean_then_clip(hl::ProcessGroup& group, hl::GradBucket& bucket) {
  co_await group.allreduce(bucket.buffer(), {.op = hl::ReduceOp::avg});
  hl::Tensor norm = hl::squared_norm(bucket.buffer());
  co_await group.allreduce(norm, {.op = hl::ReduceOp::max});
  if (norm.item<float>() > 1.0f) bucket.buffer() *= 1.0f / std::sqrt(norm.item<float>());
  co_return bucket.buffer();
}

int main() {
  auto group = hl::init_process_group();  // shared_ptr<ProcessGroup>
  std::vector<float> x(1000, float(group->rank()));
  group->allreduce(hl::Tensor::borrow(x))->wait(std::chrono::seconds(5));

  std::vector<hl::Parameter> params = {{"w", hl::Tensor::zeros({64, 10})}, {"b", hl::Tensor::zeros({10})}};
  hl::Reducer reducer(params, group, hl::make_hook("allreduce", group));
  hl::Tensor grad_w = hl::Tensor::full({64, 10}, group->rank());
  hl::Tensor grad_b = hl::Tensor::full({10}, 1);
  for (int step = 0; step < 2; ++step) {
    reducer.mark_ready("b", grad_b);  // in the backward pass, as each gradient is there
    reducer.mark_ready("w", grad_w);
    reducer.finalize();  // before the optimizer
    std::printf("rank %d, hook %s: b %.4f, w %.4f\n", group->rank(), reducer.stats().hook.c_str(),
                double(grad_b.data<float>()[0]), double(grad_w.data<float>()[0]));
    reducer.replace_hook(hl::make_hook(mean_then_clip, group, {.name = "mean_then_clip"}));
  }
}
