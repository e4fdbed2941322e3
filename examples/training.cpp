// Training without a framework: buckets, a built-in hook and a custom hook.
//
//   hookline run -n 2 build/dev/examples/example_training
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include <hookline/hookline.hpp>
namespace hl = hookline;

// A hook with two collectives, as a coroutine: the mean, scaled down if its norm is above 1.
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
  hl::Reducer reducer(params, group, hl::make_hook("int8(block=512) | error_feedback", group));
  const hl::OptimizerPtr optimizer = hl::make_optimizer("sgd(lr=0.1)");
  const hl::Tensor grad_w = hl::Tensor::empty({64, 10}), grad_b = hl::Tensor::empty({10});
  for (int step = 0; step < 20; ++step) {
    if (step == 10) reducer.replace_hook(hl::make_hook(mean_then_clip, group));
    // Each rank's gradients pull the parameters towards its rank number; their mean pulls towards the mean rank.
    for (int i = 0; i < 10; ++i) grad_b.data<float>()[i] = params[1].tensor.data<float>()[i] - float(group->rank());
    reducer.mark_ready("b", grad_b);  // in the backward pass, as soon as each gradient is computed
    for (int i = 0; i < 640; ++i) grad_w.data<float>()[i] = params[0].tensor.data<float>()[i] - float(group->rank());
    reducer.mark_ready("w", grad_w);
    reducer.finalize();        // the gradients hold the means
    optimizer->step(reducer);  // steps all parameters by them
  }
  const float b = params[1].tensor.data<float>()[0];
  std::printf("rank %d: b is %.4f; the last step sent %llu bytes\n", group->rank(), double(b),
              static_cast<unsigned long long>(reducer.stats().bytes_sent));
  return b > 0 || group->size() == 1 ? 0 : 1;
}
