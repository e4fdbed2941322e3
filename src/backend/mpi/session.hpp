// MPI in this process: whether it is there, who ends it, and whether it may still be called.
#pragma once

#include <mpi.h>

#include <mutex>
#include <string>

namespace hookline::mpi {

/// Initialises MPI for calls from any thread, unless somebody has; what was initialised here is finalised when the
/// process exits. An MPI that allows one call at a time only, or HOOKLINE_MPI_THREADS=serialized, gets one at a time.
/// Throws Unsupported where the threads may not call MPI, ResourceError where MPI was finalised already.
void begin_session();

/// Throws ResourceError where a call of MPI failed; `what` was called.
void check_call(int code, const char* what);
/// MPI's words for an error.
std::string error_text(int code);

/// Says that MPI must not be called any more: it was finalised, or a transfer that cannot be ended would go on in
/// somebody's memory. The first reason stays.
void forbid(const std::string& why) noexcept;

/// Stands around all calls of MPI: threads do not know whether it still is there. While one lives and is true, MPI is
/// not finalised. Where MPI allows one call at a time, only one thread has one.
class Calling {
 public:
  Calling() noexcept;
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;
  ~Calling();

  explicit operator bool() const noexcept { return !why_; }
  /// Why MPI must not be called.
  const std::string& why() const noexcept { return *why_; }

 private:
  std::unique_lock<std::recursive_mutex> turn_;
  const std::string* why_;
};

}  // namespace hookline::mpi
