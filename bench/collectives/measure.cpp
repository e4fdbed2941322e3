// The loop of a rank: reads rows, replies with seconds. It blocks in a read between rows, so idle ranks use no CPU.
#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "../sampling.hpp"

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatches = 9;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Runs warm operations back to back: a barrier between them would cost as much as a small operation. The median over
// batches removes outliers.
double time_warm(System& system, const Prepared& prepared, int repeats) {
  std::vector<double> times(static_cast<std::size_t>(std::min(repeats, kBatches)));
  system.barrier();
  for (double& time : times) {
    const int batch = repeats / static_cast<int>(times.size());
    const auto start = Clock::now();
    for (int i = 0; i < batch; ++i) prepared.call();
    time = seconds_since(start) / batch;
  }
  return median(times);
}

double time_fresh(System& system, const Prepared& prepared, int repeats) {
  std::vector<double> times(static_cast<std::size_t>(repeats));
  for (double& time : times) {
    prepared.rewrite();
    system.barrier();
    const auto start = Clock::now();
    prepared.call();
    time = seconds_since(start);
  }
  return median(times);
}

// Returns the time of one operation on the slowest rank, in seconds.
double measure(System& system, const Prepared& prepared, const Row& row) {
  for (int i = 0; i < 1 + row.repeats / 10; ++i) prepared.call();
  const double local_time =
      row.fresh ? time_fresh(system, prepared, row.repeats) : time_warm(system, prepared, row.repeats);
  return system.max_over_ranks(local_time);
}

}  // namespace

int serve(System& system, const std::string& directory) {
  std::ifstream commands(directory + "/" + std::to_string(system.rank()));
  std::ofstream reply;
  if (system.rank() == 0) reply.open(directory + "/reply");
  if (system.rank() == 0) reply << "ready" << std::endl;
  std::map<std::string, Prepared> prepared;  // a row's next round reuses its buffers
  for (std::string line; std::getline(commands, line);) {
    if (line == "drop") {
      prepared.clear();
      continue;
    }
    Row row;
    std::istringstream(line) >> row.op >> row.bytes >> row.memory >> row.fresh >> row.repeats;
    std::ostringstream answer;
    answer.precision(9);
    try {
      const std::string key = row.op + ' ' + std::to_string(row.bytes) + ' ' + row.memory;
      if (!prepared.contains(key)) prepared.emplace(key, system.prepare(row)).first->second.rewrite();
      answer << measure(system, prepared.at(key), row);
    } catch (const std::invalid_argument& error) {
      answer << "unsupported: " << error.what();
    }
    if (system.rank() == 0) reply << answer.str() << std::endl;
  }
  return 0;
}

}  // namespace bench
