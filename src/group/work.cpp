// The work seam, and the lane that belongs to a thread.
#include <hookline/group/work.hpp>

#include <utility>

namespace hookline {
namespace {

thread_local int lane_of_thread = 0;

}  // namespace

Work::~Work() = default;

int current_lane() noexcept { return lane_of_thread; }

LaneScope::LaneScope(int lane) noexcept : before_(std::exchange(lane_of_thread, lane)) {}
LaneScope::~LaneScope() { lane_of_thread = before_; }

}  // namespace hookline
