// Measures the reduction kernel against scaling a private buffer in place and memcpy, in interleaved rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/copy.hpp"
#include "kernel/reduce.hpp"
#include "sampling.hpp"

namespace {

using namespace hookline;
using bench::map_buffer;
using bench::median;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargest = 64u << 20;

// The memory bandwidth bound of the collectives: one read and one write of every byte, in a loop that GCC vectorizes.
__attribute__((target("avx2"), noinline)) void scale(float* x, std::size_t count, float a) {
  for (std::size_t i = 0; i < count; ++i) x[i] *= a;
}

struct Row {
  std::string label;
  double bytes_moved;  // bytes read and written for each byte of one buffer
  std::function<void(std::size_t bytes)> run;
  std::vector<double> rates;
};

}  // namespace

int main() {
  std::vector<std::byte*> buffers;
  for (int i = 0; i < 8; ++i) buffers.push_back(map_buffer(kLargest));
  auto add = [&](ReduceOp op, DType dtype, kernel::Target target, std::size_t n, std::size_t m, bool in_place,
                 kernel::StoreMode stores = kernel::StoreMode::automatic) {
    return [=, &buffers](std::size_t bytes) {
      const std::vector<const std::byte*> sources(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(n));
      const auto first = buffers.begin() + (in_place ? 0 : 4);
      const std::vector<std::byte*> destinations(first, first + static_cast<std::ptrdiff_t>(m));
      kernel::reduce(op, dtype, sources, destinations, bytes / size_of(dtype), stores, target);
    };
  };
  const kernel::Target best = kernel::best_target();
  volatile float one = 1.0f;  // keeps the compiler from removing the loop
  std::vector<Row> rows = {
      {"scale in place",
       2,
       [&](std::size_t bytes) { scale(reinterpret_cast<float*>(buffers[0]), bytes / 4, one); },
       {}},
      {"memcpy", 2, [&](std::size_t bytes) { std::memcpy(buffers[4], buffers[0], bytes); }, {}},
      {"copy", 2, [&](std::size_t bytes) { kernel::copy(buffers[4], buffers[0], bytes); }, {}},
      {"memcpy, 16 bytes off", 2, [&](std::size_t n) { std::memcpy(buffers[4] + 16, buffers[0], n - 16); }, {}},
      {"copy, 16 bytes off", 2, [&](std::size_t n) { kernel::copy(buffers[4] + 16, buffers[0], n - 16); }, {}},
      {"avg f32 4 to 4 in place", 8, add(ReduceOp::avg, DType::f32, best, 4, 4, true), {}},
      {"avg bf16 2 to 2 in place", 4, add(ReduceOp::avg, DType::bf16, best, 2, 2, true), {}},
      {"avg f16 2 to 2 in place", 4, add(ReduceOp::avg, DType::f16, best, 2, 2, true), {}},
      {"sum i32 2 to 2 in place", 4, add(ReduceOp::sum, DType::i32, best, 2, 2, true), {}},
      {"sum f32 2 to 1 in place", 3, add(ReduceOp::sum, DType::f32, best, 2, 1, true), {}},
      {"sum f32 2 to 1 elsewhere, cached",
       3,
       add(ReduceOp::sum, DType::f32, best, 2, 1, false, kernel::StoreMode::cached),
       {}},
      {"sum f32 2 to 1 elsewhere, streaming",
       3,
       add(ReduceOp::sum, DType::f32, best, 2, 1, false, kernel::StoreMode::streaming),
       {}},
      {"sum f32 2 to 2 elsewhere, cached",
       4,
       add(ReduceOp::sum, DType::f32, best, 2, 2, false, kernel::StoreMode::cached),
       {}},
      {"sum f32 2 to 2 elsewhere, streaming",
       4,
       add(ReduceOp::sum, DType::f32, best, 2, 2, false, kernel::StoreMode::streaming),
       {}},
  };
  for (const kernel::Target target : kernel::supported_targets()) {
    const std::string suffix = " (" + std::string(name(target)) + ")";
    rows.push_back({"sum f32 2 to 2 in place" + suffix, 4, add(ReduceOp::sum, DType::f32, target, 2, 2, true), {}});
    rows.push_back({"avg f32 2 to 2 in place" + suffix, 4, add(ReduceOp::avg, DType::f32, target, 2, 2, true), {}});
  }
  for (const std::size_t bytes :
       {std::size_t{32} << 10, std::size_t{256} << 10, std::size_t{4} << 20, std::size_t{25} << 20, kLargest}) {
    for (int round = 0; round < 15; ++round) {
      for (Row& row : rows) {
        const std::size_t repeats = std::max<std::size_t>(1, (16u << 20) / bytes);
        const auto start = Clock::now();
        for (std::size_t i = 0; i < repeats; ++i) row.run(bytes);
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        row.rates.push_back(row.bytes_moved * static_cast<double>(bytes * repeats) / seconds / 1e9);
      }
    }
    std::printf("buffers of %zu KiB: GB/s read and written, median of 15 rounds; ratio to scaling in place\n",
                bytes >> 10);
    const double bound = median(rows[0].rates);
    for (Row& row : rows) {
      std::printf("  %-36s %7.1f  %5.2f\n", row.label.c_str(), median(row.rates), median(row.rates) / bound);
      row.rates.clear();
    }
  }
}
