// Measures the reducer against bare collectives on the same buckets, and the overlap of hooks with the backward pass.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <hookline/hookline.hpp>

#include "sampling.hpp"

namespace {

using namespace hookline;
using bench::median;

constexpr std::size_t kRounds = 51;

std::vector<Parameter> model(std::size_t count, std::int64_t bytes) {
  std::vector<Parameter> parameters;
  for (std::size_t p = 0; p < count; ++p) {
    std::string name(1, 'p');  // "p" + … gives a false warning with gcc 12 at -O3
    name += std::to_string(p);
    parameters.push_back({name, Tensor::zeros({bytes / 4 / static_cast<std::int64_t>(count)})});
  }
  return parameters;
}

// Returns the time of one call on the slowest rank.
double slowest_rank_time(ProcessGroup& group, const std::function<void()>& call) {
  group.barrier()->wait();
  const auto start = Clock::now();
  call();
  const Tensor slowest = Tensor::full({1}, std::chrono::duration<double>(Clock::now() - start).count(), DType::f64);
  group.allreduce(slowest, {.op = ReduceOp::max})->wait();
  return slowest.item<double>();
}

/// Bare collectives on a reducer's own buckets. The gradients are views of them, so both sides of a comparison touch
/// the same memory and leave the caches in the same state.
struct BareCollectives {
  explicit BareCollectives(Reducer& reducer) : group(*reducer.group()) {
    for (const ParameterIndices& members : reducer.buckets()) {
      std::int64_t elements = 0;
      for (const std::size_t p : members) {
        const Tensor gradient = reducer.gradient(p);
        gradient_slots.emplace_back(gradient.mutable_bytes(), Tensor::zeros(gradient.shape()));
        elements += gradient.numel();
      }
      const Tensor first = reducer.gradient(members[0]);
      buckets.push_back(Tensor::wrap(first.mutable_bytes(), {elements}, DType::f32, {.owner = first.owner()}));
    }
  }
  void reduce() const {
    std::vector<WorkPtr> works;
    const int lanes = group.capabilities().lanes;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const ContextScope scope({.lane = lanes > 1 ? 1 + static_cast<int>(b) % (lanes - 1) : 0});
      works.push_back(group.allreduce(buckets[b], {.op = ReduceOp::avg}));
    }
    for (const WorkPtr& work : works) work->wait();
  }
  void copy_in() const {
    for (const auto& [at, tensor] : gradient_slots) std::memcpy(at, tensor.bytes(), tensor.nbytes());
  }
  void copy_out() const {
    for (const auto& [at, tensor] : gradient_slots) std::memcpy(tensor.mutable_bytes(), at, tensor.nbytes());
  }
  ProcessGroup& group;
  std::vector<Tensor> buckets;
  /// For each gradient, in the order of marking: its address in the bucket, and a separate tensor of the same size.
  std::vector<std::pair<std::byte*, Tensor>> gradient_slots;
};

/// The times of several interleaved calls, and their ratios within a round.
class InterleavedTimings {
 public:
  InterleavedTimings(ProcessGroup& group, std::vector<std::function<void()>> calls) : times_(calls.size()) {
    for (const auto& call : calls) call();
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::size_t c = (i + round) % calls.size();
        times_[c].push_back(slowest_rank_time(group, calls[c]));
      }
    }
  }
  double ms(std::size_t call) const { return 1e3 * median(times_[call]); }
  /// Returns by how many percent call `a` is slower than call `b`.
  double percent_over(std::size_t a, std::size_t b) const {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < kRounds; ++r) ratios.push_back(times_[a][r] / times_[b][r]);
    return 100 * (median(ratios) - 1);
  }

 private:
  std::vector<std::vector<double>> times_;
};

void compare(ProcessGroup& group, std::size_t count, std::int64_t bytes) {
  const auto shared = group.shared_from_this();
  const auto marking = [&](Reducer& reducer) {
    return [&reducer, count] {
      for (std::size_t p = count; p-- > 0;) reducer.mark_ready(p);
      reducer.finalize();
    };
  };
  Reducer reducer(model(count, bytes), shared);
  Reducer noop(model(count, bytes), shared, make_hook("noop", shared));
  const BareCollectives bare(reducer);
  std::vector<Tensor> gradients;  // the tensors that the memcpys copy, in the order of marking
  for (const auto& [at, tensor] : bare.gradient_slots) gradients.push_back(tensor);
  const InterleavedTimings views(group, {[&] { bare.reduce(); }, marking(reducer)});
  const InterleavedTimings copies(group, {[&] {
                                            bare.copy_in();
                                            bare.reduce();
                                            bare.copy_out();
                                          },
                                          [&] {
                                            for (std::size_t i = 0; i < count; ++i)
                                              reducer.mark_ready(count - 1 - i, gradients[i]);
                                            reducer.finalize();
                                          }});
  const InterleavedTimings noop_timings(group, {marking(noop)});
  if (group.rank() != 0) return;
  std::printf(
      "%3ld MB in %4zu parameters, %zu buckets: bare %.3f ms, views %.3f ms (%+.1f %%); bare and two memcpys %.3f ms, "
      "copies %.3f ms (%+.1f %%); no-op hook %.3f ms\n",
      bytes / 1000 / 1000, count, bare.buckets.size(), views.ms(0), views.ms(1), views.percent_over(1, 0), copies.ms(0),
      copies.ms(1), copies.percent_over(1, 0), noop_timings.ms(0));
  std::fflush(stdout);
}

/// Completes promises after a delay.
class Timer {
 public:
  Timer() : thread_([this] { run(); }) {}
  ~Timer() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Future<Tensor> after(Clock::duration delay, Tensor value) {
    Promise<Tensor> promise;
    Future<Tensor> future = promise.get_future();
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({Clock::now() + delay, std::move(promise), std::move(value)});
    }
    wake_.notify_one();
    return future;
  }

 private:
  struct Entry {
    Clock::time_point at;
    Promise<Tensor> promise;
    Tensor value;
  };
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Entry entry = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::this_thread::sleep_until(entry.at);
      entry.promise.set_value(entry.value);
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

// Runs a backward pass of ten buckets that takes 5 ms per bucket, with a hook of 5 ms.
void overlap(ProcessGroup& group) {
  Timer timer;
  const auto hook = make_hook([&](GradBucket& b) { return timer.after(std::chrono::milliseconds(5), b.buffer()); });
  Reducer reducer(model(10, 40'000), group.shared_from_this(), hook,
                  {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
  std::vector<double> times;
  double exposed = 0;
  for (int round = 0; round < 11; ++round) {
    times.push_back(slowest_rank_time(group, [&] {
      const auto start = Clock::now();
      for (std::size_t p = 10; p-- > 0;) {
        std::this_thread::sleep_until(start + std::chrono::milliseconds(5 * (10 - static_cast<int>(p))));
        reducer.mark_ready(p);
      }
      reducer.finalize();
    }));
    exposed = reducer.stats().exposed_comm;
  }
  if (group.rank() == 0) {
    std::printf("backward pass of 10 buckets of 5 ms, hooks of 5 ms: %.1f ms, of which %.1f ms exposed\n",
                1e3 * median(times), 1e3 * exposed);
    std::fflush(stdout);
  }
}

void run_rank(ProcessGroup& group) {
  compare(group, 25, 50'000'000);
  compare(group, 2000, 10'000'000);
  overlap(group);
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  std::string directory = (std::filesystem::temp_directory_path() / "hookline-bench-XXXXXX").string();
  if (!mkdtemp(directory.data())) return 1;
  for (int r = 0; r < ranks; ++r) {
    if (fork() == 0) {
      const auto store = std::make_shared<FileStore>(directory + "/store");
      run_rank(*init_process_group({.rank = r, .world_size = ranks, .store = store}));
      _exit(0);
    }
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed += status != 0;
  std::filesystem::remove_all(directory);
  return failed;
}
