// How each operation is called on a process group that is a Python class: its names, its arguments, its signature.
#pragma once

#include <array>

#include <nanobind/nanobind.h>

#include <hookline/backend/collective.hpp>

namespace hookline::python {

namespace nb = nanobind;

/// The names that torch.distributed has for a method, the usual one first; null where it has fewer.
using MethodNames = std::array<const char*, 3>;

struct GroupMethod {
  MethodNames names;
  /// What an override must take beside self, for messages.
  const char* signature;
};

const GroupMethod& method_of(OpType type) noexcept;

/// The positional arguments of a call, shaped as torch.distributed shapes them, with the very objects that the tensors
/// came from. Needs the GIL.
nb::object arguments_of(const Collective& collective, int size);

}  // namespace hookline::python
