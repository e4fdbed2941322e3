// The contract suite of CommHookInterface.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <hookline/hook/comm_hook.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {

/// A hook under test and its expected result.
struct HookCase {
  std::string name;
  std::function<HookPtr(std::shared_ptr<ProcessGroup> group)> make;
  bool reduces = true;   ///< true: the result is the mean over the ranks; false: the rank's own gradients
  double tolerance = 0;  ///< absolute, for a mean of gradients between -1 and 1
};

inline std::ostream& operator<<(std::ostream& out, const HookCase& hook) { return out << hook.name; }

class HookContract : public ::testing::TestWithParam<HookCase> {};

}  // namespace hookline::testing
