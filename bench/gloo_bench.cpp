// Measures allreduce on Hookline's transport gloo against Gloo called directly, alternating in the same processes.
//
// gloo_bench [ranks]: prints the two medians and their ratio for each size.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <hookline/hookline.hpp>

#include "sampling.hpp"

namespace {

using namespace hookline;

constexpr int kRounds = 15;

double seconds_of(int repeats, const std::function<void()>& call) {
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

std::shared_ptr<::gloo::Context> connect_directly(const std::string& directory, int rank, int ranks) {
  ::gloo::rendezvous::FileStore store(directory);
  auto device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
  auto context = std::make_shared<::gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  return context;
}

int run(const std::string& directory, int rank, int ranks) {
  const auto context = connect_directly(directory, rank, ranks);
  const auto group = init_process_group({.backend = "gloo",
                                         .rank = rank,
                                         .world_size = ranks,
                                         .timeout = std::chrono::seconds(60),
                                         .store = std::make_shared<FileStore>(directory + "/hookline"),
                                         .backend_options = {{"address", "127.0.0.1"}}});
  if (rank == 0) std::printf("%10s %14s %14s %8s\n", "bytes", "gloo us", "hookline us", "ratio");
  for (const std::int64_t count : {256, 2'048, 16'384, 262'144, 6'553'600}) {
    const Tensor tensor = Tensor::zeros({count});
    const auto call_gloo = [&] {
      ::gloo::AllreduceOptions options(context);
      options.setOutput(tensor.data<float>(), static_cast<std::size_t>(count));
      options.setReduceFunction(
          [](void* out, const void* a, const void* b, std::size_t n) { ::gloo::sum<float>(out, a, b, n); });
      ::gloo::allreduce(options);
    };
    const auto call_hookline = [&] { group->allreduce(tensor)->wait(); };
    const int repeats = count < 10'000 ? 200 : count < 1'000'000 ? 40 : 3;
    std::vector<double> gloo_times;
    std::vector<double> hookline_times;
    seconds_of(repeats / 3 + 1, call_gloo);
    seconds_of(repeats / 3 + 1, call_hookline);
    for (int round = 0; round < kRounds; ++round) {
      group->barrier()->wait();
      gloo_times.push_back(seconds_of(repeats, call_gloo));
      group->barrier()->wait();
      hookline_times.push_back(seconds_of(repeats, call_hookline));
    }
    const double gloo_us = bench::median(gloo_times) * 1e6;
    const double hookline_us = bench::median(hookline_times) * 1e6;
    if (rank == 0) {
      std::printf("%10lld %14.1f %14.1f %8.2f\n", static_cast<long long>(count * 4), gloo_us, hookline_us,
                  hookline_us / gloo_us);
      std::fflush(stdout);
    }
  }
  group->barrier()->wait();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  std::string directory = (std::filesystem::temp_directory_path() / "hookline-gloo-XXXXXX").string();
  if (!mkdtemp(directory.data())) return 1;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        _exit(run(directory, rank, ranks));
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
        _exit(1);
      }
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= status;
  }
  std::filesystem::remove_all(directory);
  return failed ? 1 : 0;
}
