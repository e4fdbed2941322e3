// Adds up how long something took.
#pragma once

#include <chrono>

#include <hookline/core/deadline.hpp>

namespace hookline::core {

/// Adds the time that it lived to a number of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  double& seconds_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace hookline::core
