// Errors that cross the border between this library and PyTorch.
#pragma once

#include <exception>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline::libtorch {

/// Base of the exceptions that PyTorch gets in place of an error of this library. from_torch() returns that error.
class StandsForError {
 public:
  explicit StandsForError(std::exception_ptr error) : error_(std::move(error)) {}
  virtual ~StandsForError();
  const std::exception_ptr& error() const noexcept { return error_; }

 private:
  std::exception_ptr error_;
};

/// Under Python an error becomes the exception of hookline_torch.errors: of our type, and of the type that code written
/// for PyTorch catches. Without Python InvalidArgument becomes a c10::ValueError, Unsupported a
/// c10::NotImplementedError, every other error a c10::DistBackendError that begins with the name of our type. An error
/// that came out of PyTorch becomes what it was; others stay as they are.
std::exception_ptr for_torch(const std::exception_ptr& error);

/// The other way: what a process group or store of PyTorch's threw, as the type of ours that fits, with the original as
/// its cause.
std::exception_ptr from_torch(const std::exception_ptr& error);

/// Calls `f`, which uses this library, for a caller that is PyTorch.
template <class F>
decltype(auto) called_by_torch(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error&) {
    std::rethrow_exception(for_torch(std::current_exception()));
  }
}

/// Calls `f`, which uses PyTorch, for a caller that is this library.
template <class F>
decltype(auto) calling_torch(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error&) {
    throw;
  } catch (...) {
    std::rethrow_exception(from_torch(std::current_exception()));
  }
}

}  // namespace hookline::libtorch
