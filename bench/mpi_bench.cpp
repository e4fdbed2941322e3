// Measures allreduce on the transport `mpi` against MPI_Allreduce called directly, alternating in the same processes:
// mpirun -n 2 build/release/bench/mpi_bench
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include <hookline/backend/make_backend.hpp>
#include <hookline/group/process_group.hpp>

namespace {

using Seconds = std::chrono::duration<double>;

/// Returns the mean time of one call over a batch, on the slowest rank.
double time_of(const std::function<void()>& call, int batch) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < batch; ++i) call();
  double local_time = Seconds(std::chrono::steady_clock::now() - begin).count() / batch;
  double slowest = 0;
  MPI_Allreduce(&local_time, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  {
    const auto group =
        hookline::make_group(hookline::make_backend("mpi", {.rank = rank, .size = size}), std::chrono::seconds(60));
    if (rank == 0)
      std::printf("%10s %14s %14s %10s %8s\n", "bytes", "MPI direct us", "hookline us", "added us", "ratio");
    struct Case {
      std::int64_t bytes;
      int batch;
      int rounds;
    };
    for (const Case& c : {Case{1024, 1000, 31}, Case{64 * 1024, 200, 31}, Case{25 << 20, 2, 31}}) {
      const std::int64_t count = c.bytes / 4;
      const hookline::Tensor tensor = hookline::Tensor::zeros({count});
      std::vector<float> plain(static_cast<std::size_t>(count));
      const auto call_mpi = [&] {
        MPI_Allreduce(MPI_IN_PLACE, plain.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
      const auto call_hookline = [&] { group->allreduce(tensor)->wait(); };
      std::vector<double> mpi_times;
      std::vector<double> hookline_times;
      time_of(call_mpi, c.batch);
      time_of(call_hookline, c.batch);
      for (int round = 0; round < c.rounds; ++round) {
        mpi_times.push_back(time_of(call_mpi, c.batch));
        hookline_times.push_back(time_of(call_hookline, c.batch));
      }
      const double mpi_us = median(mpi_times) * 1e6;
      const double hookline_us = median(hookline_times) * 1e6;
      if (rank == 0)
        std::printf("%10ld %14.2f %14.2f %10.2f %8.3f\n", c.bytes, mpi_us, hookline_us, hookline_us - mpi_us,
                    hookline_us / mpi_us);
    }
  }
  MPI_Finalize();
  return 0;
}
