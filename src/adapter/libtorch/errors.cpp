// The mapping between the error types of Hookline and PyTorch.
#include "adapter/libtorch/errors.hpp"

#include <string>

#include <c10/util/Backtrace.h>
#include <c10/util/Exception.h>

#include "adapter/libtorch/gil.hpp"

namespace hookline::libtorch {
namespace {

template <class E>
std::exception_ptr make_torch_error(const std::string& message) {
  return std::make_exception_ptr(E(message, c10::Backtrace()));
}

bool is_hookline_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// True if a message of torch reports a timeout. torch's groups and stores have no exception type for it.
bool is_timeout_message(const std::string& message) {
  for (const char* word : {"imed out", "imeout", "did not join", "longer than"}) {
    if (message.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

ErrorCarrier::~ErrorCarrier() = default;

std::exception_ptr to_torch_error(const std::exception_ptr& error) {
  const auto with_type_name = [](const char* kind, const Error& e) {
    return make_torch_error<c10::DistBackendError>(std::string(kind) + ": " + e.what());
  };
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    if (e.cause() && !is_hookline_error(e.cause())) return e.cause();
    if (python_runtime().to_python_error) {
      if (std::exception_ptr raised = python_runtime().to_python_error(error)) return raised;
    }
    if (dynamic_cast<const InvalidArgument*>(&e)) return make_torch_error<c10::ValueError>(e.what());
    if (dynamic_cast<const Unsupported*>(&e)) return make_torch_error<c10::NotImplementedError>(e.what());
    if (dynamic_cast<const Timeout*>(&e)) return with_type_name("Timeout", e);
    if (dynamic_cast<const PeerLost*>(&e)) return with_type_name("PeerLost", e);
    if (dynamic_cast<const Mismatch*>(&e)) return with_type_name("Mismatch", e);
    if (dynamic_cast<const Aborted*>(&e)) return with_type_name("Aborted", e);
    if (dynamic_cast<const ResourceError*>(&e)) return with_type_name("ResourceError", e);
    return with_type_name("Error", e);
  } catch (...) {
    return error;
  }
}

std::exception_ptr from_torch_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return error;
  } catch (const ErrorCarrier& e) {
    return e.error();
  } catch (const c10::NotImplementedError& e) {
    return std::make_exception_ptr(Unsupported(e.what_without_backtrace(), error));
  } catch (const c10::ValueError& e) {
    return std::make_exception_ptr(InvalidArgument(e.what_without_backtrace(), error));
  } catch (const c10::Error& e) {
    const std::string message = e.what_without_backtrace();
    if (is_timeout_message(message)) return std::make_exception_ptr(Timeout(message, error));
    return std::make_exception_ptr(Error(message, error));
  } catch (const std::exception& e) {
    const std::string message = e.what();
    if (is_timeout_message(message)) return std::make_exception_ptr(Timeout(message, error));
    if (message.find("by peer") != std::string::npos) return std::make_exception_ptr(PeerLost(message, error));
    return std::make_exception_ptr(Error(message, error));
  } catch (...) {
    return error;
  }
}

}  // namespace hookline::libtorch
