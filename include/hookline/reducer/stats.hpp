// What a reducer measures of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hookline {

/// Times are seconds since the step began, with its first gradient.
struct BucketStats {
  std::size_t index = 0;
  std::size_t parameters = 0;
  std::size_t bytes = 0;
  std::uint64_t sent_bytes = 0;  ///< by this rank, counted as by the usual algorithms
  double ready = 0;              ///< its last gradient came
  double launched = 0;           ///< its hook was started
  double done = 0;               ///< the reduced buffer was there
};

struct StepStats {
  std::uint64_t step = 0;  ///< counts from 1; 0 where there was none
  std::string hook;
  std::vector<BucketStats> buckets;
  std::uint64_t sent_bytes = 0;
  double backward = 0;              ///< from the first gradient to finalize()
  double exposed = 0;               ///< what communication took beyond that
  double total = 0;                 ///< until finalize() returned
  std::vector<std::string> unused;  ///< parameters that no rank had a gradient for
  bool rebuilt = false;             ///< the buckets were made anew before this step
};

}  // namespace hookline
