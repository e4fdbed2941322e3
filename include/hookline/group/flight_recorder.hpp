// Flight recorder: a group wrapper that keeps its last operations and dumps them on errors.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

struct FlightRecorderOptions {
  std::size_t capacity = 1024;  ///< number of operations kept
  /// Directory of the dumps, created on demand. Empty: HOOKLINE_DEBUG_DIR, else "hookline-debug".
  std::string directory = {};
  std::string name = {};  ///< name of the group in the dump, the same on all ranks; empty: "group0", "group1", ...
};

/// Wraps `group`: a ring buffer records each operation, its times and its outcome. Each rank dumps its ring as a JSON
/// file at the group's first failed operation, at SIGUSR1, and in dump_flight_records(). `hookline debug DIR` reads the
/// files of all ranks.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> with_flight_recorder(std::shared_ptr<ProcessGroup> group,
                                                                   const FlightRecorderOptions& options = {});

/// Returns the records of the flight recorder in `group` as JSON. `group` is the recorder or a wrapper around it.
/// Throws InvalidArgument if there is no recorder.
HOOKLINE_EXPORT std::string flight_records(const ProcessGroup& group);

/// Writes the records to a file and returns its path; an empty `path` selects the file of the group's options. Throws
/// ResourceError if writing fails.
HOOKLINE_EXPORT std::string dump_flight_records(const ProcessGroup& group, const std::string& path = {});

}  // namespace hookline
