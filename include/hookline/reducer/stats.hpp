// Statistics of a reducer's step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hookline {

/// Statistics of one bucket. Times are seconds since the first gradient of the step.
struct BucketStats {
  std::size_t index = 0;
  std::size_t parameters = 0;
  std::size_t bytes = 0;
  std::uint64_t bytes_sent = 0;  ///< bytes sent by this rank; computed from the operations' sizes, not measured
  double ready = 0;              ///< time of its last gradient
  double launched = 0;           ///< start of its hook
  double done = 0;               ///< completion of its hook
};

struct StepStats {
  std::uint64_t step = 0;  ///< number of the step, from 1; 0 before the first
  std::string hook;
  std::vector<BucketStats> buckets;
  std::uint64_t bytes_sent = 0;
  double backward = 0;              ///< from the first gradient to finalize()
  double exposed_comm = 0;          ///< communication time not hidden by the backward pass
  double total = 0;                 ///< from the first gradient to the end of finalize()
  std::vector<std::string> unused;  ///< parameters without a gradient on any rank
  bool rebuilt = false;             ///< true if the buckets were rebuilt before this step
};

}  // namespace hookline
