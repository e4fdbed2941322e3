// A log of operations in a file: opening it safely, locking it, reading what is new, appending, and compacting.
#pragma once

#include <cstdint>
#include <string>

#include <hookline/core/deadline.hpp>

#include "core/descriptor.hpp"
#include "store/record.hpp"

namespace hookline::store {

/// One open file description. Not for several threads at once: its user has a mutex. The lock is the kernel's and ends
/// with the process.
class LogFile {
 public:
  explicit LogFile(std::string path);

  const std::string& path() const { return path_; }

  /// Held from construction to destruction; contents() are then those of all processes. Throws Timeout where another
  /// process holds the lock until the deadline, and ResourceError for a damaged file.
  class Lock {
   public:
    enum class Mode { shared, exclusive };
    Lock(LogFile& log, Mode mode, Clock::time_point deadline);
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock();

    const Contents& contents() const { return log_.contents_; }
    /// Writes one operation down and then does it. Needs the exclusive lock. ResourceError where the system refuses;
    /// nothing has changed then.
    void write(const Record& record);
    /// Whether the path leads to this file, which somebody may have removed between our opening and locking it.
    bool at_its_path() const;
    /// Takes the file's name away where it still names this file.
    void remove_name();

   private:
    LogFile& log_;
  };

 private:
  void take_lock(Lock::Mode mode, Clock::time_point deadline);
  void load();
  bool put(const std::string& bytes);
  void compact();
  [[noreturn]] void fail(const char* call) const;
  [[noreturn]] void damaged(std::uint64_t offset) const;

  std::string path_;
  core::Descriptor fd_;
  std::uint64_t fork_generation_;
  Contents contents_;
  FileHeader header_;
  std::uint64_t end_ = 0;
  std::uint64_t snapshot_bytes_ = 0;
};

}  // namespace hookline::store
