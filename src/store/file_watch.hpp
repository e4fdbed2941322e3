// Waiting for a file to change.
#pragma once

#include <string>

#include <hookline/core/deadline.hpp>

#include "core/descriptor.hpp"

namespace hookline::store {

/// Watches one file through inotify. Where that is not to be had (no /proc, no watches left, a file that another host
/// writes to) the waits are short ones, and the caller looks at the file anyway.
class FileWatch {
 public:
  explicit FileWatch(const std::string& path);

  /// Returns when the file was changed since the last call, or since construction, and at the latest after a while that
  /// is never longer than `most`.
  void wait(Milliseconds most);

 private:
  core::Descriptor fd_;
};

}  // namespace hookline::store
