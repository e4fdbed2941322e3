// Validates works and futures returned by groups implemented in Python.
#pragma once

#include <exception>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hookline::libtorch {

/// Returns the future of a work, which may be implemented in Python. Throws InvalidArgument if the work or the future
/// is None, which PyTorch accepts and then crashes on. Throws what get_future() raises.
c10::intrusive_ptr<c10::ivalue::Future> future_of_work(const c10::intrusive_ptr<c10d::Work>& work);

/// True if the work is implemented in Python and overrides wait().
bool overrides_wait(const c10::intrusive_ptr<c10d::Work>& work);

/// Returns the exception set by Python's Future.set_exception, which PyTorch stores as a value; null for other values.
std::exception_ptr exception_from(const c10::IValue& value);

}  // namespace hookline::libtorch
