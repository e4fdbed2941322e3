// Stopwatch: accumulates the duration of a scope.
#pragma once

#include <chrono>

#include <hookline/core/deadline.hpp>

namespace hookline::core {

inline double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// Adds its lifetime in seconds to `sum` on destruction.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : seconds_(sum) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { seconds_ += seconds(Clock::now() - begin_); }

 private:
  double& seconds_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace hookline::core
