// The options of a collective as Python users give them: keywords, or one of torch's option objects.
#pragma once

#include <optional>

#include <nanobind/nanobind.h>

#include <hookline/backend/collective.hpp>
#include <hookline/core/reduce_op.hpp>

namespace hookline::python {

/// What all option objects are underneath; each class shows the attributes that it has in torch.
struct CallOptions {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int root_tensor = 0;
  std::optional<Milliseconds> timeout = std::nullopt;
};

/// The arguments of a call, None where not given. An option object is taken in the place of any of them, as torch has
/// it second or third; what is given beside it counts more.
struct CallArguments {
  nanobind::handle op{};
  nanobind::handle root{};
  nanobind::handle timeout{};
  nanobind::handle opts{};

  /// Writes op, root and timeout. Throws nb::type_error naming the argument that is of a wrong type.
  void apply_to(Collective& collective) const;
};

/// The option object that belongs to an operation, with its op, root and timeout. Needs the GIL.
nanobind::object options_object(const Collective& collective);

}  // namespace hookline::python
