// The Python methods of process groups for each operation: names, arguments and signatures.
#pragma once

#include <array>

#include <nanobind/nanobind.h>

#include <hookline/backend/operation.hpp>

namespace hookline::python {

namespace nb = nanobind;

/// The names of a method in torch.distributed, the most common one first; padded with null.
using MethodNames = std::array<const char*, 3>;

struct GroupMethod {
  MethodNames names;
  /// The parameters of an override without self, for error messages.
  const char* signature;
};

const GroupMethod& method_of(OpType type) noexcept;

/// Returns the positional arguments of a call, nested as in torch.distributed, with the original Python objects of the
/// tensors. Needs the GIL.
nb::object arguments_of(const Operation& collective, int size);

}  // namespace hookline::python
