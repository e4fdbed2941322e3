// The model that a reducer is given: parameters and buffers; and gradients of few rows.
#pragma once

#include <string>

#include <hookline/core/tensor.hpp>

namespace hookline {

struct Parameter {
  std::string name;
  Tensor tensor;
  bool sparse = false;   ///< its gradient comes as a SparseGradient
  bool ignored = false;  ///< is neither checked nor broadcast nor reduced
  bool delayed = false;  ///< is reduced behind all others
  bool frozen = false;   ///< is compared and broadcast, but has no gradient

  bool has_gradient() const noexcept { return !ignored && !frozen; }
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// The rows of a gradient that are not zero: row i of `values` belongs to row indices[i] of the parameter. A row may
/// come more than once and is then added up.
struct SparseGradient {
  Tensor indices;  ///< int64, one dimension
  Tensor values;   ///< the parameter's shape with another first extent
};

}  // namespace hookline
