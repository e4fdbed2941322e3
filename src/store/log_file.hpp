// LogFile: an append-only log of operations in a locked file, with compaction.
#pragma once

#include <cstdint>
#include <string>

#include <hookline/core/deadline.hpp>

#include "core/file_descriptor.hpp"
#include "store/record.hpp"

namespace hookline::store {

/// An open log file. Not thread-safe. Locking uses flock(), so the kernel releases the lock when a process dies.
class LogFile {
 public:
  explicit LogFile(std::string path);

  const std::string& path() const { return path_; }

  /// Holds the file lock; contents() then includes the operations of all processes. Throws Timeout if another process
  /// holds the lock until the deadline, and ResourceError for a corrupt file.
  class Lock {
   public:
    enum class Mode { shared, exclusive };
    Lock(LogFile& log, Mode mode, Clock::time_point deadline);
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock();

    const Contents& contents() const { return log_.contents_; }
    /// Appends an operation to the log and applies it. Requires the exclusive lock. Throws ResourceError, without a
    /// change, if a system call fails.
    void write(const Record& record);
    /// True if the path still refers to this file. Another process may remove it between open and lock.
    bool is_at_path() const;
    /// Unlinks the path if it still refers to this file.
    void unlink_path();

   private:
    LogFile& log_;
  };

 private:
  void take_lock(Lock::Mode mode, Clock::time_point deadline);
  void load();
  bool append(const std::string& bytes);
  void compact();
  [[noreturn]] void throw_system_error(const char* call) const;
  [[noreturn]] void throw_corrupt(std::uint64_t offset) const;

  std::string path_;
  core::FileDescriptor fd_;
  std::uint64_t fork_generation_;
  Contents contents_;
  FileHeader header_;
  std::uint64_t end_ = 0;
  std::uint64_t snapshot_bytes_ = 0;
};

}  // namespace hookline::store
