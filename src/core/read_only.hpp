// The advice in error messages about read-only tensors.
#pragma once

namespace hookline::core {

inline constexpr const char* kPassWritableCopy =
    "pass a writable copy, in Python np.array(x); arrays of JAX are always read-only";

}  // namespace hookline::core
