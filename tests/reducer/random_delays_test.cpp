// Tests random models, hooks and options with random delays of ranks, threads and buckets. Checks the means in every
// step. Prints a failing seed; HOOKLINE_SEED=n replays it, HOOKLINE_SEEDS=n sets the number of seeds.
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <hookline/core/executor.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

using Random = std::mt19937;

int below(Random& random, int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); }

// Mostly short, so that threads race, and sometimes long enough for another rank to finish its step.
void delay(Random& random) {
  const int kind = below(random, 16);
  if (kind < 8) return;
  if (kind < 15) {
    for (int i = below(random, 400); i > 0; --i) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (kind == 14) std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(below(random, 300)));
}

/// The random choices that are equal on all ranks.
struct Case {
  explicit Case(unsigned seed) : random(seed) {
    const int count = 1 + below(random, 40);
    for (int p = 0; p < count; ++p) widths.push_back(1 + below(random, 60));
    options.limits = {.first_bucket_bytes = static_cast<std::size_t>(1 + below(random, 300)),
                      .bucket_bytes = static_cast<std::size_t>(1 + below(random, 400))};
    const int kind = below(random, 6);
    options.find_unused_parameters = kind == 0;
    options.static_graph = kind == 1;
    steps = 4 + below(random, 6);
    threads = 1 + below(random, 3);
    for (int& hook : hooks) hook = below(random, 5);
  }
  Random random;
  std::vector<int> widths;
  ReducerOptions options;
  int steps = 0;
  int threads = 1;
  int hooks[2] = {};  ///< for the first and the second half of the steps
};

Future<Tensor> three_collectives(ProcessGroup& group, GradBucket& bucket) {
  Tensor copy = bucket.buffer().clone();
  co_await group.allreduce(copy);
  co_await group.broadcast(copy);
  const Tensor largest = Tensor::full({1}, static_cast<double>(bucket.index()), DType::i64);
  const AllreduceOptions options{.op = ReduceOp::max};
  co_await group.allreduce(largest, options);
  if (largest.item<std::int64_t>() != static_cast<std::int64_t>(bucket.index())) {
    throw std::runtime_error("a collective of another bucket ran in this bucket's lane");
  }
  copy *= 1.0 / group.size();
  co_return copy;
}

/// Creates one of the hooks. `later` completes Futures on another thread.
HookPtr hook_of(int kind, const std::shared_ptr<ProcessGroup>& group, const std::shared_ptr<ThreadExecutor>& later,
                unsigned seed) {
  switch (kind) {
    case 0: return nullptr;
    case 1: return make_hook(three_collectives, group);
    case 2:
      return make_hook(
          [group, seed](GradBucket& bucket) {
            Random random(seed + static_cast<unsigned>(bucket.index()));
            delay(random);
            group->allreduce(bucket.buffer(), {.op = ReduceOp::avg})->wait();
            delay(random);
            return Future<Tensor>::ready(bucket.buffer());
          },
          {.name = "blocking", .may_block = true});
    case 3:
      return make_hook(
          [group, later, seed](GradBucket& bucket) {
            const WorkPtr work = group->allreduce(bucket.buffer(), {.op = ReduceOp::avg});
            Promise<Tensor> promise;
            Future<Tensor> future = promise.get_future();
            later->post(
                [promise = std::move(promise), work, buffer = bucket.buffer(), random = Random(seed)]() mutable {
                  delay(random);
                  work->wait();
                  promise.set_value(buffer);
                });
            return future;
          },
          {.name = "later"});
    default:
      return wrap(make_hook(three_collectives, group), [](HookPtr inner, GradBucket& bucket) -> Future<Tensor> {
        const Tensor result = co_await run_and_parse(std::move(inner), bucket);
        co_return result;
      });
  }
}

/// Integers, so that sums are exact in any order.
float value(int rank, std::size_t parameter, int step, std::int64_t i) {
  return static_cast<float>((1 + rank) * static_cast<int>(i % 11) + 3 * static_cast<int>(parameter) + step);
}

class Rank {
 public:
  Rank(unsigned seed, ProcessGroup& group)
      : shared_(seed),
        group_(group),
        seed_(seed * 31 + static_cast<unsigned>(group.rank())),
        own_(seed_),
        later_(std::make_shared<ThreadExecutor>("later")) {
    std::vector<Parameter> parameters;
    for (const int width : shared_.widths) {
      parameters.push_back({"p" + std::to_string(parameters.size()), Tensor::zeros({width})});
      gradients_.push_back(Tensor::zeros({width}));
    }
    reducer_.emplace(parameters, group.shared_from_this(), hook(0), shared_.options);
  }

  void run() {
    for (int step = 1; step <= shared_.steps; ++step) {
      if (step == shared_.steps / 2) reducer_->replace_hook(hook(1));
      std::vector<std::size_t> used;
      const std::size_t unused =
          shared_.options.find_unused_parameters ? shared_.random() % gradients_.size() : gradients_.size();
      for (std::size_t p = 0; p < gradients_.size(); ++p) {
        if (p != unused) used.push_back(p);
      }
      // A static graph must be the same in every step, so it excludes accumulation.
      const int rounds = shared_.options.static_graph || below(shared_.random, 4) > 0 ? 1 : 2;
      if (rounds == 2) {
        const auto guard = reducer_->no_sync();
        mark(used, step);
        reducer_->finalize();
      }
      mark(used, step);
      delay(own_);
      reducer_->finalize();
      for (const std::size_t p : used) check(p, step, rounds);
    }
  }

 private:
  HookPtr hook(int half) { return hook_of(shared_.hooks[half], group_.shared_from_this(), later_, seed_); }

  void mark(std::vector<std::size_t> used, int step) {
    for (const std::size_t p : used) {
      for (std::int64_t i = 0; i < gradients_[p].numel(); ++i) {
        gradients_[p].data<float>()[i] = value(group_.rank(), p, step, i);
      }
    }
    std::shuffle(used.begin(), used.end(), own_);
    std::vector<std::thread> threads;
    const auto count = static_cast<std::size_t>(shared_.threads);
    for (std::size_t t = 0; t < count; ++t) {
      threads.emplace_back([this, &used, t, count, random = Random(own_())]() mutable {
        for (std::size_t k = t; k < used.size(); k += count) {
          delay(random);
          reducer_->mark_ready(used[k], gradients_[used[k]]);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void check(std::size_t p, int step, int rounds) const {
    for (std::int64_t i = 0; i < gradients_[p].numel(); ++i) {
      float sum = 0;
      for (int r = 0; r < group_.size(); ++r) sum += value(r, p, step, i);
      const float wanted = static_cast<float>(rounds) * sum / static_cast<float>(group_.size());
      const float is = gradients_[p].data<float>()[i];
      if (std::abs(is - wanted) > 1e-4f) {
        throw std::runtime_error(
            fmt::format("step {}, parameter {}, element {} is {}, and not {}", step, p, i, is, wanted));
      }
    }
  }

  Case shared_;
  ProcessGroup& group_;
  const unsigned seed_;
  Random own_;
  std::shared_ptr<ThreadExecutor> later_;
  std::vector<Tensor> gradients_;
  std::optional<Reducer> reducer_;
};

class RandomDelays : public ::testing::TestWithParam<GroupFixture> {};

TEST_P(RandomDelays, MeansAreCorrect) {
  const char* const one = std::getenv("HOOKLINE_SEED");
  const char* const many = std::getenv("HOOKLINE_SEEDS");
  const unsigned count = many ? static_cast<unsigned>(std::atoi(many)) : 25;
  const unsigned first = one ? static_cast<unsigned>(std::atoll(one)) : std::random_device{}() >> 8;
  for (unsigned seed = first; seed < first + (one ? 1 : count); ++seed) {
    try {
      GetParam().spawn(1 + static_cast<int>(seed % 3), [&](ProcessGroup& group) { Rank(seed, group).run(); });
    } catch (const std::exception& e) {
      FAIL() << "HOOKLINE_SEED=" << seed << ": " << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, RandomDelays, ::testing::Values(threads_fixture(), shm_fixture()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
