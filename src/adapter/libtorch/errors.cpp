// The mapping between the error types of Hookline and PyTorch.
#include "adapter/libtorch/errors.hpp"

#include <string>

#include <c10/util/Backtrace.h>
#include <c10/util/Exception.h>

#include "adapter/libtorch/waiting.hpp"

namespace hookline::libtorch {
namespace {

template <class E>
std::exception_ptr plain(const std::string& message) {
  return std::make_exception_ptr(E(message, c10::Backtrace()));
}

bool is_ours(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// True if a message of torch reports a timeout. torch's groups and stores have no exception type for it.
bool tells_of_time(const std::string& message) {
  for (const char* word : {"imed out", "imeout", "did not come", "longer than"}) {
    if (message.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

StandsForError::~StandsForError() = default;

std::exception_ptr for_torch(const std::exception_ptr& error) {
  const auto named = [](const char* kind, const Error& e) {
    return plain<c10::DistBackendError>(std::string(kind) + ": " + e.what());
  };
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (e.cause() && !is_ours(e.cause())) return e.cause();
    if (python_hooks().raised) {
      if (std::exception_ptr raised = python_hooks().raised(error)) return raised;
    }
    if (dynamic_cast<const InvalidArgument*>(&e)) return plain<c10::ValueError>(e.what());
    if (dynamic_cast<const Unsupported*>(&e)) return plain<c10::NotImplementedError>(e.what());
    if (dynamic_cast<const Timeout*>(&e)) return named("Timeout", e);
    if (dynamic_cast<const PeerLost*>(&e)) return named("PeerLost", e);
    if (dynamic_cast<const Mismatch*>(&e)) return named("Mismatch", e);
    if (dynamic_cast<const Aborted*>(&e)) return named("Aborted", e);
    if (dynamic_cast<const ResourceError*>(&e)) return named("ResourceError", e);
    return named("Error", e);
  } catch (...) {
    return error;
  }
}

std::exception_ptr from_torch(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return error;
  } catch (const StandsForError& e) {
    return e.error();
  } catch (const c10::NotImplementedError& e) {
    return std::make_exception_ptr(Unsupported(e.what_without_backtrace(), error));
  } catch (const c10::ValueError& e) {
    return std::make_exception_ptr(InvalidArgument(e.what_without_backtrace(), error));
  } catch (const c10::Error& e) {
    const std::string message = e.what_without_backtrace();
    if (tells_of_time(message)) return std::make_exception_ptr(Timeout(message, error));
    return std::make_exception_ptr(Error(message, error));
  } catch (const std::exception& e) {
    const std::string message = e.what();
    if (tells_of_time(message)) return std::make_exception_ptr(Timeout(message, error));
    if (message.find("by peer") != std::string::npos) return std::make_exception_ptr(PeerLost(message, error));
    return std::make_exception_ptr(Error(message, error));
  } catch (...) {
    return error;
  }
}

}  // namespace hookline::libtorch
