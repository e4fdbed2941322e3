// A large group, in which every rank has a connection to every other one.
#include "contract/group_limits.hpp"

namespace hookline::testing {
namespace {

TEST(GlooLimits, SixtyFourRanks) { group_worlds().front().spawn(64, try_large_group); }

}  // namespace
}  // namespace hookline::testing
