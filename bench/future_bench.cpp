// Measures the latency from setting a promise to its continuation on another thread, against a condition variable.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

#include <hookline/core/executor.hpp>
#include <hookline/core/future.hpp>

#include "sampling.hpp"

namespace {

using namespace hookline;
using bench::median;

constexpr int kRounds = 15;
constexpr int kSamples = 2'000;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Returns the median time from notify_one to the return of the other thread's wait.
double condition_variable_round() {
  std::mutex mutex;
  std::condition_variable wake;
  bool set = false;
  bool stop = false;
  double woken_after = 0;
  Clock::time_point start;
  std::binary_semaphore seen(0);
  std::thread other([&] {
    for (;;) {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return set; });
      woken_after = seconds_since(start);
      set = false;
      if (stop) return;
      lock.unlock();
      seen.release();
    }
  });
  std::vector<double> samples;
  for (int i = 0; i <= kSamples; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // until the other thread blocks again
    {
      const std::lock_guard lock(mutex);
      set = true;
      stop = i == kSamples;
      start = Clock::now();
    }
    wake.notify_one();
    if (i == kSamples) break;
    seen.acquire();
    samples.push_back(woken_after);
  }
  other.join();
  return median(samples);
}

// Returns the median time from set_value to the start of the continuation on the executor's thread.
double future_round() {
  const auto executor = std::make_shared<ThreadExecutor>("bench");
  std::vector<double> samples;
  std::binary_semaphore seen(0);
  for (int i = 0; i < kSamples; ++i) {
    Promise<int> promise(executor);
    Clock::time_point start;
    double ran_after = 0;
    promise.get_future().on_done([&] {
      ran_after = seconds_since(start);
      seen.release();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    start = Clock::now();
    promise.set_value(1);
    seen.acquire();
    samples.push_back(ran_after);
  }
  return median(samples);
}

}  // namespace

int main() {
  std::vector<double> bare;
  std::vector<double> futures;
  std::vector<double> ratios;
  for (int i = 0; i < kRounds; ++i) {
    bare.push_back(condition_variable_round());
    futures.push_back(future_round());
    ratios.push_back(futures.back() / bare.back());
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  std::printf("future to continuation / condition variable: %.2f (rounds %.2f to %.2f); %.1f us / %.1f us\n",
              median(ratios), *low, *high, 1e6 * median(futures), 1e6 * median(bare));
}
