// Giving up on behalf of the other ranks, where the group can.
#pragma once

#include <string>

#include <hookline/group/process_group.hpp>

namespace hookline::group {

/// Aborts a group whose caller gets an error of its own in any case, so that the other ranks do not wait for this one.
/// A group that cannot be aborted is left as it is: its peers run into their timeouts.
inline void abort_quietly(ProcessGroup& group, const std::string& cause) {
  try {
    group.abort(cause);
  } catch (...) {  // the error that led here matters more
  }
}

}  // namespace hookline::group
