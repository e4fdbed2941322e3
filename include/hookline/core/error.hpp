// The errors that Hookline throws or hands over through a Future.
#pragma once

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <hookline/core/export.hpp>

namespace hookline {

/// The base of every error of this library. It may carry the error that caused it, and the ranks it is about.
class HOOKLINE_EXPORT Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::exception_ptr cause = nullptr);
  Error(const std::string& message, std::vector<int> ranks, std::exception_ptr cause = nullptr);
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;

  /// The error that led to this one, or null.
  const std::exception_ptr& cause() const noexcept { return cause_; }

  /// Returns the ranks that this error is about, ascending, numbered as in the group that was called: for PeerLost the
  /// ranks that died or left, for Timeout those that did not come, for Mismatch those that differ, for Aborted those
  /// that gave up. Empty where they are not known.
  const std::vector<int>& ranks() const noexcept;

 private:
  std::exception_ptr cause_;
  std::shared_ptr<const std::vector<int>> ranks_;  ///< shared, so that copying an error does not throw; null for none
};

/// The caller's own mistake: thrown at once, in the caller's thread. ValueError in Python.
class HOOKLINE_EXPORT InvalidArgument : public Error {
 public:
  using Error::Error;
  ~InvalidArgument() override;
};

/// An operation, device or engine that is not to be had here. NotImplementedError in Python.
class HOOKLINE_EXPORT Unsupported : public Error {
 public:
  using Error::Error;
  ~Unsupported() override;
};

/// Something did not happen in time. TimeoutError in Python.
class HOOKLINE_EXPORT Timeout : public Error {
 public:
  using Error::Error;
  ~Timeout() override;
};

/// A peer died or its connection broke. RuntimeError in Python, as the two below.
class HOOKLINE_EXPORT PeerLost : public Error {
 public:
  using Error::Error;
  ~PeerLost() override;
};

/// The ranks did not call the same operation. No data was changed.
class HOOKLINE_EXPORT Mismatch : public Error {
 public:
  using Error::Error;
  ~Mismatch() override;
};

/// A rank gave up, the group was aborted, or a promise was dropped unfulfilled.
class HOOKLINE_EXPORT Aborted : public Error {
 public:
  using Error::Error;
  ~Aborted() override;
};

/// What the operating system refused: memory, files, sockets. OSError in Python.
class HOOKLINE_EXPORT ResourceError : public Error {
 public:
  using Error::Error;
  ~ResourceError() override;
};

/// The message of an error followed by those of its causes, one a line.
HOOKLINE_EXPORT std::string describe(const std::exception_ptr& error);

}  // namespace hookline
