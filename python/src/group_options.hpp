// The options of a collective in Python: keyword arguments, or option objects as in torch.distributed.
#pragma once

#include <optional>

#include <nanobind/nanobind.h>

#include <hookline/backend/operation.hpp>
#include <hookline/core/reduce_op.hpp>

namespace hookline::python {

/// The common base of the option objects. Each derived class binds the attributes of its torch counterpart.
struct CallOptions {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int root_tensor = 0;
  std::optional<Milliseconds> timeout = std::nullopt;
};

/// The option arguments of a call, None if absent. An option object is accepted in any position, since torch passes it
/// second or third; explicit arguments take precedence over it.
struct CallArguments {
  nanobind::handle op{};
  nanobind::handle root{};
  nanobind::handle timeout{};
  nanobind::handle opts{};

  /// Sets op, root and timeout. Throws nb::type_error naming the argument of the wrong type.
  void apply_to(Operation& collective) const;
};

/// Returns the option object for an operation, with its op, root and timeout. Needs the GIL.
nanobind::object options_object(const Operation& collective);

}  // namespace hookline::python
