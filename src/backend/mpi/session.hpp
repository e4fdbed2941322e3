// The lifetime of MPI in this process, and the guard of every MPI call.
#pragma once

#include <mpi.h>

#include <mutex>
#include <string>

namespace hookline::mpi {

/// Initializes MPI with MPI_THREAD_MULTIPLE, unless the application has initialized it. If Hookline initialized MPI, it
/// also finalizes it at exit. Calls are serialized if MPI provides only MPI_THREAD_SERIALIZED or
/// HOOKLINE_MPI_THREADS=serialized. Throws Unsupported if the thread level is too low, ResourceError if MPI was
/// finalized.
void init_mpi();

/// Throws ResourceError naming `call` if `code` is not MPI_SUCCESS.
void check_call(int code, const char* call);
/// Returns MPI's description of an error code.
std::string error_text(int code);

/// Forbids all further MPI calls: MPI was finalized, or an uncancellable transfer would write to freed memory. The
/// first reason is kept.
void poison(const std::string& reason) noexcept;

/// Guards MPI calls. While a guard is alive and true, MPI is not finalized. If calls are serialized, the guard holds
/// their mutex.
class MpiCallGuard {
 public:
  MpiCallGuard() noexcept;
  MpiCallGuard(const MpiCallGuard&) = delete;
  MpiCallGuard& operator=(const MpiCallGuard&) = delete;
  ~MpiCallGuard();

  explicit operator bool() const noexcept { return !reason_; }
  /// Returns the reason why MPI calls are forbidden. Requires that operator bool is false.
  const std::string& reason() const noexcept { return *reason_; }

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  const std::string* reason_;
};

}  // namespace hookline::mpi
