// The interface to a measured library, and the server loop of its ranks: reads a benchmark row from a pipe, runs it and
// replies with the time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace bench {

/// One line from the driver: the operation, its buffer and the number of calls.
struct Row {
  std::string op;
  std::int64_t bytes = 0;  ///< of the largest buffer that a rank passes
  std::string memory;      ///< "shared" or "other"
  bool fresh = false;      ///< each rank rewrites its buffer before each operation, untimed
  int repeats = 1;
};

/// The calls of a row, which own its buffers.
struct Prepared {
  std::function<void()> call;     ///< one blocking operation
  std::function<void()> rewrite;  ///< rewrites this rank's input
};

/// A process group of the measured library.
class System {
 public:
  virtual ~System() = default;
  virtual int rank() const = 0;
  virtual void barrier() = 0;
  virtual double max_over_ranks(double value) = 0;
  /// Throws std::invalid_argument if the system does not support the operation.
  virtual Prepared prepare(const Row& row) = 0;
};

/// Serves until the driver closes the pipe `directory`/<rank>. Rank 0 replies in `directory`/reply.
int serve(System& system, const std::string& directory);

/// Returns the number of elements of each of `ranks` blocks, at least 1.
inline std::int64_t elements_per_rank(const Row& row, int ranks) {
  return std::max<std::int64_t>(row.bytes / 4 / ranks, 1);
}

}  // namespace bench
