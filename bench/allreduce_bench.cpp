// Measures allreduce between processes on shm beside its bound: the same processes scaling a private buffer in place.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <hookline/hookline.hpp>

namespace {

using namespace hookline;

constexpr int kRounds = 7;

__attribute__((target("avx2"), noinline)) void scale(float* x, std::int64_t count, float a) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= a;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The time of one call, as the slowest rank saw it; every rank gets the same answer.
double timed(ProcessGroup& group, int repeats, const std::function<void()>& call, const std::function<void()>& before) {
  double total = 0;
  for (int i = 0; i < repeats; ++i) {
    before();
    group.barrier()->wait();
    const auto start = Clock::now();
    call();
    total += std::chrono::duration<double>(Clock::now() - start).count();
  }
  const Tensor slowest = Tensor::full({1}, total / repeats, DType::f64);
  group.allreduce(slowest, {.op = ReduceOp::max})->wait();
  return slowest.item<double>();
}

// Small operations back to back, since a barrier before each would cost as much as they do.
double timed_in_a_row(ProcessGroup& group, int repeats, const std::function<void()>& call) {
  return timed(
             group, 1,
             [&] {
               for (int i = 0; i < repeats; ++i) call();
             },
             [] {}) /
         repeats;
}

void run_rank(ProcessGroup& group) {
  if (group.rank() == 0) {
    std::printf("f32 allreduce, %d ranks on shm; medians of %d interleaved rounds\n", group.size(), kRounds);
    std::printf("%10s %28s %12s %12s %12s %12s\n", "bytes", "share of the bound", "bound", "shared", "fresh", "other");
  }
  for (const std::int64_t bytes : {1L << 10, 64L << 10, 1L << 20, 25L << 20, 64L << 20}) {
    const std::int64_t count = bytes / 4;
    const Tensor shared = group.empty({count});
    const Tensor other = Tensor::zeros({count});
    const Tensor scaled = Tensor::zeros({count});
    shared.fill(0);
    const int repeats = static_cast<int>(std::clamp<std::int64_t>((64L << 20) / bytes, 3, 2'000));
    std::vector<double> bound, in_shared, fresh, in_other;
    for (int round = 0; round < kRounds; ++round) {
      const auto reduce = [&](const Tensor& t) { group.allreduce(t)->wait(); };
      bound.push_back(timed_in_a_row(group, repeats, [&] { scale(scaled.data<float>(), count, 1.0001f); }));
      in_shared.push_back(timed_in_a_row(group, repeats, [&] { reduce(shared); }));
      fresh.push_back(timed(group, std::min(repeats, 50), [&] { reduce(shared); }, [&] { shared.fill(round); }));
      in_other.push_back(timed_in_a_row(group, repeats, [&] { reduce(other); }));
    }
    if (group.rank() == 0) {
      const double b = median(bound);
      std::printf("%10ld  shared %.2f fresh %.2f other %.2f %10.2fus %10.2fus %10.2fus %10.2fus\n", bytes,
                  b / median(in_shared), b / median(fresh), b / median(in_other), 1e6 * b, 1e6 * median(in_shared),
                  1e6 * median(fresh), 1e6 * median(in_other));
      std::fflush(stdout);
    }
  }
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
