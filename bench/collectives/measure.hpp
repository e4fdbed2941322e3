// How a rank of any system serves the benchmark's driver: it waits for the next row in a pipe, runs it and replies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace bench {

/// One line from the driver: which operation, on how much memory of which kind, and how often.
struct Row {
  std::string op;
  std::int64_t bytes = 0;  ///< of the largest buffer that a rank passes
  std::string memory;      ///< "shared" or "other"
  bool fresh = false;      ///< every rank rewrites its buffer before each operation, not timed
  int repeats = 1;
};

/// The calls of a row on buffers that live as long as it does.
struct Prepared {
  std::function<void()> call;     ///< one operation, from start to end
  std::function<void()> rewrite;  ///< writes what this rank passes in
};

/// What is measured: a process group of one library or another.
class System {
 public:
  virtual ~System() = default;
  virtual int rank() const = 0;
  virtual void barrier() = 0;
  virtual double max_over_ranks(double value) = 0;
  /// Throws std::invalid_argument for an operation that the system does not have.
  virtual Prepared prepare(const Row& row) = 0;
};

/// Serves until the driver closes the pipe `directory`/<rank>. Rank 0 replies in `directory`/reply.
int serve(System& system, const std::string& directory);

/// How many elements each of `ranks` parts has, at least 1.
inline std::int64_t elements_per_rank(const Row& row, int ranks) {
  return std::max<std::int64_t>(row.bytes / 4 / ranks, 1);
}

}  // namespace bench
