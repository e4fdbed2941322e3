// The loop of a rank: rows come in, seconds go out. Between rows it blocks in a read, so that idle systems cost
// nothing.
#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Warm operations follow each other without a break: a barrier between them would cost as much as the small ones do.
double in_a_row(System& system, const Prepared& prepared, int repeats) {
  system.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) prepared.call();
  return seconds_since(start) / repeats;
}

double each_fresh(System& system, const Prepared& prepared, int repeats) {
  double total = 0;
  for (int i = 0; i < repeats; ++i) {
    prepared.rewrite();
    system.barrier();
    const auto start = Clock::now();
    prepared.call();
    total += seconds_since(start);
  }
  return total / repeats;
}

// Seconds of one operation, as the slowest rank saw it.
double measure(System& system, const Prepared& prepared, const Row& row) {
  for (int i = 0; i < 1 + row.repeats / 10; ++i) prepared.call();
  const double mine = row.fresh ? each_fresh(system, prepared, row.repeats) : in_a_row(system, prepared, row.repeats);
  return system.max_over_ranks(mine);
}

}  // namespace

int serve(System& system, const std::string& directory) {
  std::ifstream commands(directory + "/" + std::to_string(system.rank()));
  std::ofstream reply;
  if (system.rank() == 0) reply.open(directory + "/reply");
  if (system.rank() == 0) reply << "ready" << std::endl;
  std::map<std::string, Prepared> prepared;  // the buffers of a row are used again in its next round
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
