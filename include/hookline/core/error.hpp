// Exception types that Hookline throws or stores in a Future.
#pragma once

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <hookline/core/export.hpp>

namespace hookline {

/// The base class of all errors. May carry its cause and the affected ranks.
class HOOKLINE_EXPORT Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::exception_ptr cause = nullptr);
  Error(const std::string& message, std::vector<int> ranks, std::exception_ptr cause = nullptr);
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;

  /// Returns the error that caused this one, or null.
  const std::exception_ptr& cause() const noexcept { return cause_; }

  /// Returns the affected ranks, ascending, in the numbering of the group that was called: for PeerLost the ranks that
  /// died or left, for Timeout the missing ranks, for Mismatch the differing ranks, for Aborted the ranks that aborted.
  /// Empty if unknown.
  const std::vector<int>& ranks() const noexcept;

 private:
  std::exception_ptr cause_;
  std::shared_ptr<const std::vector<int>> ranks_;  ///< shared, so that copying an error does not throw; null if unknown
};

/// An invalid argument or a misuse by the caller; thrown immediately in the caller's thread. ValueError in Python.
class HOOKLINE_EXPORT InvalidArgument : public Error {
 public:
  using Error::Error;
  ~InvalidArgument() override;
};

/// An operation, device or transport that is not available. NotImplementedError in Python.
class HOOKLINE_EXPORT Unsupported : public Error {
 public:
  using Error::Error;
  ~Unsupported() override;
};

/// An operation did not complete within its timeout. TimeoutError in Python.
class HOOKLINE_EXPORT Timeout : public Error {
 public:
  using Error::Error;
  ~Timeout() override;
};

/// A peer died or its connection was lost. RuntimeError in Python, like Mismatch and Aborted.
class HOOKLINE_EXPORT PeerLost : public Error {
 public:
  using Error::Error;
  ~PeerLost() override;
};

/// The ranks called different operations. No data was modified.
class HOOKLINE_EXPORT Mismatch : public Error {
 public:
  using Error::Error;
  ~Mismatch() override;
};

/// A rank aborted, the group was aborted, or a promise was destroyed unfulfilled.
class HOOKLINE_EXPORT Aborted : public Error {
 public:
  using Error::Error;
  ~Aborted() override;
};

/// The operating system denied memory, a file, a socket or a thread. OSError in Python.
class HOOKLINE_EXPORT ResourceError : public Error {
 public:
  using Error::Error;
  ~ResourceError() override;
};

/// Returns the message of an error followed by those of its causes, one per line.
HOOKLINE_EXPORT std::string describe(const std::exception_ptr& error);

}  // namespace hookline
