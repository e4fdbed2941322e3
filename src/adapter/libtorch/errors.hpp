// Converts errors between Hookline and PyTorch.
#pragma once

#include <exception>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline::libtorch {

/// Base of exceptions that carry a Hookline error through PyTorch. from_torch_error() unwraps it.
class ErrorCarrier {
 public:
  explicit ErrorCarrier(std::exception_ptr error) : error_(std::move(error)) {}
  virtual ~ErrorCarrier();
  const std::exception_ptr& error() const noexcept { return error_; }

 private:
  std::exception_ptr error_;
};

/// Converts a Hookline error for PyTorch. Under Python it becomes an exception of hookline_torch.errors, which derives
/// from Hookline's type and from the type that PyTorch code catches. Without Python, InvalidArgument becomes
/// c10::ValueError, Unsupported becomes c10::NotImplementedError, and every other error a c10::DistBackendError whose
/// text begins with the name of its type. An error that came from PyTorch is restored; other exceptions are unchanged.
std::exception_ptr to_torch_error(const std::exception_ptr& error);

/// Converts an exception of a PyTorch process group or store to the matching Hookline type, with the original as its
/// cause.
std::exception_ptr from_torch_error(const std::exception_ptr& error);

/// Calls `f`, which uses Hookline, on behalf of PyTorch: converts errors with to_torch_error().
template <class F>
decltype(auto) with_torch_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error&) {
    std::rethrow_exception(to_torch_error(std::current_exception()));
  }
}

/// Calls `f`, which uses PyTorch, on behalf of Hookline: converts errors with from_torch_error().
template <class F>
decltype(auto) with_hookline_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error&) {
    throw;
  } catch (...) {
    std::rethrow_exception(from_torch_error(std::current_exception()));
  }
}

}  // namespace hookline::libtorch
