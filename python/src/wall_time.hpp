// When something happened, as Python's datetime.
#pragma once

#include <chrono>

#include <nanobind/stl/chrono.h>

#include <hookline/core/deadline.hpp>

namespace hookline::python {

/// As the clock on the wall had it; Python's datetime has no other. The difference is taken once, so that times stay in
/// their order.
inline std::chrono::system_clock::time_point on_the_wall(Clock::time_point time) {
  static const auto clocks_began = std::chrono::system_clock::now() - Clock::now().time_since_epoch();
  return std::chrono::time_point_cast<std::chrono::system_clock::duration>(clocks_began + time.time_since_epoch());
}

}  // namespace hookline::python
