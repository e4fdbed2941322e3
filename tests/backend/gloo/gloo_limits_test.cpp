// A group of 64 ranks, fully connected.
#include "contract/group_limits.hpp"

namespace hookline::testing {
namespace {

TEST(GlooLimits, SixtyFourRanks) { group_fixtures().front().spawn(64, check_large_group); }

}  // namespace
}  // namespace hookline::testing
