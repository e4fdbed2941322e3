// The inputs of a reducer: parameters, buffers and sparse gradients.
#pragma once

#include <string>

#include <hookline/core/tensor.hpp>

namespace hookline {

struct Parameter {
  std::string name;
  Tensor tensor;
  bool sparse = false;       ///< has a SparseGradient
  bool ignored = false;      ///< not checked, broadcast or reduced
  bool reduce_last = false;  ///< reduced after all other parameters
  bool frozen = false;       ///< checked and broadcast, but has no gradient

  bool has_gradient() const noexcept { return !ignored && !frozen; }
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// A row-sparse gradient: row i of `values` belongs to row indices[i] of the parameter. Duplicate rows are summed.
struct SparseGradient {
  Tensor indices;  ///< int64, one dimension
  Tensor values;   ///< the parameter's shape, except for the first extent
};

}  // namespace hookline
