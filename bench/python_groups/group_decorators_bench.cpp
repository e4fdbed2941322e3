// Measures the time that completion hooks and decorators add to a small allreduce.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include <hookline/hookline.hpp>

#include "../sampling.hpp"

namespace {

using namespace hookline;
using bench::median;

constexpr int kRounds = 15;
constexpr int kCalls = 20'000;

std::shared_ptr<ProcessGroup> single_rank_group() { return make_group(make_threads_backends(1)[0]); }

/// Returns the CPU time of this thread, which does all the work.
double thread_cpu_nanoseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e9 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec);
}

/// Returns the nanoseconds of a blocking allreduce of four floats on a group of one rank. The backend does almost
/// nothing there, so the overhead stands out.
double nanoseconds(ProcessGroup& group) {
  const Tensor t = Tensor::full({4}, 1);
  const double begin = thread_cpu_nanoseconds();
  for (int i = 0; i < kCalls; ++i) group.allreduce(t)->wait();
  return (thread_cpu_nanoseconds() - begin) / kCalls;
}

void measure_overhead(const char* label, ProcessGroup& group, double limit) {
  const auto bare = single_rank_group();
  std::vector<double> added;
  std::vector<double> plain;
  for (int i = 0; i < kRounds; ++i) {
    plain.push_back(nanoseconds(*bare));
    added.push_back(nanoseconds(group) - plain.back());
  }
  std::printf("%-32s adds %6.0f ns to %6.0f ns", label, median(added), median(plain));
  if (limit > 0) std::printf("  (at most %.0f ns: %s)", limit, median(added) < limit ? "met" : "MISSED");
  std::printf("\n");
}

/// Forwards to another store and counts the calls.
class CountingStore final : public Store {
 public:
  explicit CountingStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  std::string describe() const override { return store_->describe(); }
  void set(const std::string& k, const std::string& v) override { counted().set(k, v); }
  std::string get(const std::string& k) override { return counted().get(k); }
  std::int64_t add(const std::string& k, std::int64_t n) override { return counted().add(k, n); }
  void wait(const std::vector<std::string>& k, Milliseconds t) override { counted().wait(k, t); }
  bool check(const std::vector<std::string>& k) override { return counted().check(k); }
  bool delete_key(const std::string& k) override { return counted().delete_key(k); }
  std::int64_t num_keys() override { return counted().num_keys(); }
  std::vector<std::string> multi_get(const std::vector<std::string>& k) override { return counted().multi_get(k); }
  void multi_set(const std::vector<std::string>& k, const std::vector<std::string>& v) override {
    counted().multi_set(k, v);
  }
  int calls() const { return calls_; }

 private:
  Store& counted() {
    ++calls_;
    return *store_;
  }
  const std::shared_ptr<Store> store_;
  std::atomic<int> calls_ = 0;
};

void count_round_trips() {
  constexpr int kRanks = 4;
  const auto shared = std::make_shared<MemoryStore>();
  const auto backends = make_threads_backends(kRanks);
  std::vector<std::thread> ranks;
  std::atomic<int> most = 0;
  for (const auto& backend : backends) {
    ranks.emplace_back([&] {
      const auto store = std::make_shared<CountingStore>(shared);
      const auto group = with_collective_checks(make_group(backend), store);
      const Tensor t = Tensor::full({4}, 1);
      for (int i = 0; i < 200; ++i) {
        const int before = store->calls();
        group->allreduce(t)->wait();
        const int calls = store->calls() - before;
        int seen = most;
        while (calls > seen && !most.compare_exchange_weak(seen, calls)) {
        }
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  std::printf("%-32s max %d round trips to the store (at most 4: %s), %lld keys left\n",
              "with_collective_checks, 4 ranks", most.load(), most <= 4 ? "met" : "MISSED",
              static_cast<long long>(shared->num_keys()));
}

}  // namespace

int main() {
  measure_overhead("nothing (noise)", *single_rank_group(), 0);
  {
    const auto group = single_rank_group();
    std::uint64_t calls = 0;
    group->register_on_completion_hook([&](const WorkInfo&) { ++calls; });
    measure_overhead("a completion hook in C++", *group, 200);
  }
  measure_overhead("with_flight_recorder", *with_flight_recorder(single_rank_group()), 200);
  measure_overhead("with_nan_checks", *with_nan_checks(single_rank_group()), 0);
  measure_overhead("a no-op decorator", *std::make_shared<GroupDecorator>(single_rank_group()), 0);
  count_round_trips();
}
