// A group that remembers its last operations and writes them to a file when something goes wrong.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

struct RecordOptions {
  std::size_t capacity = 1024;  ///< how many operations are remembered
  /// Where dumps go; HOOKLINE_DEBUG_DIR, or "hookline-debug" in the current directory, where empty. Made when needed.
  std::string directory = {};
  std::string name = {};  ///< of the group in the dump, the same on all ranks; "group0" and so on where empty
};

/// A group around `group` that keeps what was called, when, and what came of it, in a ring. The ring is dumped, as a
/// file of JSON for each rank, when an operation fails (with Timeout, say; once a group), when the process gets
/// SIGUSR1, and by dump_records(). `hookline debug DIR` reads the files of all ranks.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> recorded(std::shared_ptr<ProcessGroup> group,
                                                       const RecordOptions& options = {});

/// What a group that recorded() made, or one around it, remembers, as JSON. InvalidArgument for any other group.
HOOKLINE_EXPORT std::string records(const ProcessGroup& group);

/// Writes the same to a file, that of the group's options where no path is given, and returns its path. ResourceError
/// where that fails.
HOOKLINE_EXPORT std::string dump_records(const ProcessGroup& group, const std::string& path = {});

}  // namespace hookline
