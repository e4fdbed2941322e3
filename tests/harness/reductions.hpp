// The reductions that tests go through, and which elements each of them takes.
#pragma once

#include <vector>

#include <hookline/core/error.hpp>
#include <hookline/core/reduce_op.hpp>

namespace hookline::testing {

/// One of each kind.
inline std::vector<ReduceOp> every_reduction(double factor) {
  return {ReduceOp::sum, ReduceOp::avg,  ReduceOp::product,           ReduceOp::min, ReduceOp::max, ReduceOp::band,
          ReduceOp::bor, ReduceOp::bxor, ReduceOp::premul_sum(factor)};
}

inline bool takes(ReduceOp op, DType dtype) {
  try {
    check(op, dtype);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace hookline::testing
