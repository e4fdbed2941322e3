// Tests every hook end to end: twelve layers of 1024x1024 in the default buckets, with random delays. In every step the
// means must be correct and have the same bits on all ranks. HOOKLINE_SEEDS of 1000 or more selects 200 steps;
// HOOKLINE_SEED=n replays one seed.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

constexpr std::size_t kLayers = 12;
constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kElements = kWidth * kWidth;
constexpr int kRanks = 2;

using Random = std::mt19937;

void delay(Random& random) {
  const auto kind = random() % 8;
  if (kind >= 6) std::this_thread::sleep_for(std::chrono::microseconds(random() % (kind == 7 ? 3000 : 200)));
}

/// Returns a hook that delays each bucket before `inner` runs, and its result afterwards.
HookPtr delayed(HookPtr inner, unsigned seed) {
  const auto calls = std::make_shared<std::atomic<unsigned>>(seed);
  return wrap(std::move(inner), [calls](HookPtr hook, GradBucket& bucket) -> Future<Tensor> {
    Random random((*calls)++);
    delay(random);
    Tensor result = co_await run_and_parse(std::move(hook), bucket);
    delay(random);
    co_return result;
  });
}

/// Returns a pseudo-random number between -1 and 1.
float value(int rank, std::size_t layer, int step, std::int64_t i) {
  auto bits = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U +
              static_cast<std::uint32_t>(layer) * 2246822519U + static_cast<std::uint32_t>(step) * 3266489917U;
  bits = (bits ^ (bits >> 15)) * 2246822519U;
  return static_cast<float>(static_cast<std::int32_t>(bits ^ (bits >> 13))) * 0x1p-31f;
}

struct Case {
  std::string hook;
  double error;  ///< maximum error of a mean of values between -1 and 1
};

std::ostream& operator<<(std::ostream& out, const Case& what) { return out << what.hook; }

// PowerSGD sends only a small part of a noise matrix per step, so the residual accumulates.
constexpr double kMaxResidual = 8;

bool is_powersgd(const Case& test_case) { return test_case.hook.find("powersgd") != std::string::npos; }

// Quantization is off by up to half a step, or a whole step with stochastic rounding. Error feedback may add the
// previous error.
std::vector<Case> cases() {
  const double eight = 2.0 / 255;
  const double four = 2.0 / 14;
  return {{"allreduce", 1e-6},
          {"noop", 1e-6},
          {"fp16", 1e-3},
          {"bf16", 8e-3},
          {"int8", 0.51 * eight},
          {"int8(rounding=stochastic)", 1.01 * eight},
          {"int4", 0.51 * four},
          {"int4(rounding=stochastic)", 1.01 * four},
          {"quantize_per_tensor", 0.51 * eight},
          {"quantize_per_channel", 0.51 * eight},
          {"int8 | error_feedback", 1.1 * eight},
          {"int4 | error_feedback", 1.2 * four},
          {"allreduce | fp16", 2e-3},
          {"int8 | where(name=*3, fallback=fp16)", 0.51 * eight},
          {"powersgd(rank=1, start_iter=2)", kMaxResidual},
          {"powersgd(rank=2, start_iter=2, wire=fp16)", kMaxResidual},
          {"batched_powersgd(rank=1, start_iter=2)", kMaxResidual},
          {"batched_powersgd(rank=2, start_iter=2)", kMaxResidual},
          {"powersgd(rank=4, start_iter=2) | where(name=*1, fallback=fp16)", kMaxResidual}};
}

class Training {
 public:
  Training(const Case& test_case, ProcessGroup& group, unsigned seed)
      : case_(test_case),
        group_(group),
        random_(seed * 31 + static_cast<unsigned>(group.rank())),
        reducer_(parameters(), group.shared_from_this(),
                 delayed(make_hook(test_case.hook, group.shared_from_this()),
                         seed * 1000 + static_cast<unsigned>(group.rank()) * 500)) {
    for (std::size_t l = 0; l < kLayers; ++l) gradients_.push_back(Tensor::empty({kWidth, kWidth}));
  }

  void step(int number) {
    for (std::size_t l = 0; l < kLayers; ++l) {
      float* const g = gradients_[l].data<float>();
      for (std::int64_t i = 0; i < kElements; ++i) g[i] = value(group_.rank(), l, number, i);
    }
    // Approximately the order of a backward pass, with differences between ranks.
    std::vector<std::size_t> order(kLayers);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    for (int swaps = 0; swaps < 3; ++swaps) {
      const std::size_t at = random_() % (kLayers - 1);
      std::swap(order[at], order[at + 1]);
    }
    for (const std::size_t l : order) {
      delay(random_);
      reducer_.mark_ready(l, gradients_[l]);
    }
    reducer_.finalize();
    check_means(number);
    if (case_.hook != "noop") check_bits(number);
  }

 private:
  static std::vector<Parameter> parameters() {
    std::vector<Parameter> all;
    for (std::size_t l = 0; l < kLayers; ++l) {
      all.push_back({fmt::format("layer{}", l), Tensor::zeros({kWidth, kWidth})});
    }
    return all;
  }

  void check_means(int step) const {
    for (std::size_t l = 0; l < kLayers; ++l) {
      for (std::int64_t i = step % 61; i < kElements; i += 61) {
        double wanted = 0;
        for (int r = 0; r < kRanks; ++r) wanted += value(r, l, step, i) / kRanks;
        if (case_.hook == "noop") wanted = value(group_.rank(), l, step, i);
        const double is = gradients_[l].data<float>()[i];
        const double error = is_powersgd(case_) && step <= 2 ? 1e-3 : case_.error;  // compression starts after step 2
        if (!(std::abs(is - wanted) <= error)) {
          throw std::runtime_error(
              fmt::format("step {}, layer {}, element {} is {}, and the mean is {}", step, l, i, is, wanted));
        }
      }
    }
  }

  void check_bits(int step) const {
    std::uint64_t hash = 0;
    for (const Tensor& gradient : gradients_) {
      const float* const g = gradient.data<float>();
      for (std::int64_t i = 0; i < kElements; i += 2) {
        std::uint64_t word = 0;
        std::memcpy(&word, g + i, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15;
      }
    }
    const Tensor min_hash = Tensor::empty({1}, DType::i64);
    min_hash.data<std::int64_t>()[0] = static_cast<std::int64_t>(hash);
    const Tensor max_hash = min_hash.clone();
    group_.allreduce(min_hash, {.op = ReduceOp::min})->wait();
    group_.allreduce(max_hash, {.op = ReduceOp::max})->wait();
    if (min_hash.item<std::int64_t>() != max_hash.item<std::int64_t>()) {
      throw std::runtime_error(fmt::format("in step {} the ranks end with other bits", step));
    }
  }

  const Case& case_;
  ProcessGroup& group_;
  Random random_;
  Reducer reducer_;
  std::vector<Tensor> gradients_;
};

class HooksEndToEnd : public ::testing::TestWithParam<std::tuple<GroupFixture, Case>> {};

TEST_P(HooksEndToEnd, SameMeansOnAllRanks) {
  const auto& [fixture, what] = GetParam();
  const char* const seeds = std::getenv("HOOKLINE_SEEDS");
  const char* const one = std::getenv("HOOKLINE_SEED");
  const int steps = seeds && std::atoi(seeds) >= 1000 ? 200 : is_powersgd(what) ? 5 : 3;
  const unsigned seed = one ? static_cast<unsigned>(std::atoll(one)) : std::random_device{}() >> 8;
  try {
    fixture.spawn(kRanks, [&, &hook = what](ProcessGroup& group) {
      Training training(hook, group, seed);
      for (int s = 1; s <= steps; ++s) training.step(s);
    });
  } catch (const std::exception& e) {
    FAIL() << "HOOKLINE_SEED=" << seed << ": " << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Hooks, HooksEndToEnd,
                         ::testing::Combine(::testing::Values(threads_fixture(), shm_fixture()),
                                            ::testing::ValuesIn(cases())),
                         [](const auto& test) {
                           std::string name = std::get<0>(test.param).name + "_" + std::get<1>(test.param).hook;
                           std::replace_if(
                               name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace hookline::testing
