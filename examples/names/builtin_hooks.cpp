// The names of the hooks that come with the library: what each does to one bucket, alone and around another.
// hookline run -n 2 build/dev/examples/example_names_builtin_hooks
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

namespace {

/// A matrix "w" and a vector "b", filled with the rank's number, through a hook: how far it is from the mean of all.
double error_of(const hl::HookPtr& hook, const hl::ProcessGroup& group) {
  const auto layout = std::make_shared<hl::BucketLayout>(hl::layout_of({{32, 16}, {16}}, {}, {"w", "b"}));
  hl::GradBucket bucket(0, 1, hl::Tensor::full({528}, group.rank()), layout);
  hook->begin_step({});
  const hl::Tensor result = hl::run_and_parse(hook, bucket).wait();
  hook->end_step({});
  double error = 0;
  for (int i = 0; i < 528; ++i) error = std::fmax(error, std::abs(result.data<float>()[i] - (group.size() - 1) / 2.0));
  return error;
}

}  // namespace

int main() {
  const auto group = hl::init_process_group();
  const auto mean = std::make_shared<hl::AllreduceHook>(group);
  expect(error_of(mean, *group) == 0);
  const double mine = std::abs(group->rank() - (group->size() - 1) / 2.0);
  expect(error_of(std::make_shared<hl::NoopHook>(), *group) == mine);  // every rank keeps its own
  const auto int8 = std::make_shared<hl::CompressHook>(group, hl::make_codec("int8"));
  expect(error_of(int8, *group) < 0.01);

  // PyTorch's names for some of them.
  expect(hl::hook_text(hl::DDPCommHookType::FP16_COMPRESS) == "fp16");
  expect(error_of(hl::make_hook(hl::DDPCommHookType::BF16_COMPRESS, group), *group) < 0.01);

  // Two thin factors for each matrix; a matrix of equal numbers is their product, so nothing is lost of it.
  const hl::PowerSGDOptions options = {.matrix_approximation_rank = 1, .start_powerSGD_iter = 2};
  const auto state = std::make_shared<hl::PowerSGDState>(group, options);
  const auto power = std::make_shared<hl::PowerSGDHook>(state);
  for (int step = 0; step < 4; ++step) expect(error_of(power, *group) < 1e-3);
  expect(state->compression_stats().rate > 1);

  // The mean of all ranks in the first ten steps, then that of a part of them.
  const auto local = std::make_shared<hl::PostLocalSGDState>(group, nullptr, 10);
  expect(error_of(std::make_shared<hl::PostLocalSGDHook>(local), *group) == 0);

  // Around others.
  expect(error_of(hl::error_feedback(int8), *group) < 0.01);
  expect(error_of(hl::cast_around(mean, hl::DType::bf16, group), *group) == 0);
  const hl::ParameterRule matrices = {.name = "w*", .min_size = 100, .dims = 2};
  expect(error_of(hl::where(int8, matrices, mean), *group) < 0.01);
  std::vector<std::string> lines;
  expect(error_of(hl::logged(mean, [&](const std::string& line) { lines.push_back(line); }), *group) == 0);
  std::printf("%s\n", lines.at(0).c_str());
  const hl::HookPtr compared = hl::compared_with_exact(int8, group);
  expect(error_of(compared, *group) < 0.01 && compared->costs().at(0).relative_error < 0.01);
}
