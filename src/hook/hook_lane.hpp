// What whoever runs hooks on buckets decides: the lane of each, and who else has to hear of a failure.
#pragma once

#include <cstddef>
#include <exception>

#include <hookline/hook/comm_hook.hpp>

namespace hookline::hook {

/// The lane of a bucket on a group of so many: lane 0 is the user's where there are others, and hooks that block share
/// one.
int lane_of(const CommHookInterface& hook, std::size_t bucket, int lanes);

/// Whether all ranks learn of such an error by themselves.
bool comes_from_the_group(const std::exception_ptr& error);

}  // namespace hookline::hook
