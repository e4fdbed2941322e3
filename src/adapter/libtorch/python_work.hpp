// Works and futures that Python classes hand to PyTorch, looked at before they are used.
#pragma once

#include <exception>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace hookline::libtorch {

/// The future of a work, which may be one of a Python class. PyTorch takes None for a work or a future and ends the
/// process when it is used: here it is InvalidArgument. Throws what get_future() raises.
c10::intrusive_ptr<c10::ivalue::Future> future_of_work(const c10::intrusive_ptr<c10d::Work>& work);

/// True if the work is of a Python class that has a wait() of its own.
bool overrides_wait(const c10::intrusive_ptr<c10d::Work>& work);

/// The exception that a future was given by Python's set_exception, which PyTorch takes for a value; null for others.
std::exception_ptr exception_in(const c10::IValue& value);

}  // namespace hookline::libtorch
