// Best-effort abort of a group.
#pragma once

#include <string>

#include <hookline/group/process_group.hpp>

namespace hookline::group {

/// Aborts the group so that other ranks do not wait for this one; the caller reports its own error. If the group does
/// not support abort(), its peers time out.
inline void abort_quietly(ProcessGroup& group, const std::string& cause) {
  try {
    group.abort(cause);
  } catch (...) {  // the caller's error takes precedence
  }
}

}  // namespace hookline::group
