// Validates works and futures returned by Python classes.
#pragma once

#include <exception>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hookline::libtorch {

/// Returns the future of a work, possibly of a Python class. Throws InvalidArgument if the work or the future is None,
/// which PyTorch accepts and then crashes on. Throws what get_future() raises.
c10::intrusive_ptr<c10::ivalue::Future> future_of_work(const c10::intrusive_ptr<c10d::Work>& work);

/// True if the work belongs to a Python class that overrides wait().
bool overrides_wait(const c10::intrusive_ptr<c10d::Work>& work);

/// Returns the exception set by Python's Future.set_exception, which PyTorch stores as a value; null for other values.
std::exception_ptr exception_from(const c10::IValue& value);

}  // namespace hookline::libtorch
