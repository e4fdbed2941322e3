// The contract of CommHookInterface: an implementation instantiates it in a few lines.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <hookline/hook/comm_hook.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {

/// A hook under test, and what it makes of the ranks' gradients.
struct HookCase {
  std::string name;
  std::function<HookPtr(std::shared_ptr<ProcessGroup> group)> make;
  bool reduces = true;   ///< gives the mean over the ranks; otherwise the rank's own
  double tolerance = 0;  ///< of a mean of gradients between -1 and 1
};

inline std::ostream& operator<<(std::ostream& out, const HookCase& hook) { return out << hook.name; }

class HookContract : public ::testing::TestWithParam<HookCase> {};

}  // namespace hookline::testing
