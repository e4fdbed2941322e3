// The reduce ops that tests iterate over, and the dtypes that each supports.
#pragma once

#include <vector>

#include <hookline/core/error.hpp>
#include <hookline/core/reduce_op.hpp>

namespace hookline::testing {

/// Returns one op of each kind; `factor` is that of premul_sum.
inline std::vector<ReduceOp> all_reduce_ops(double factor) {
  return {ReduceOp::sum, ReduceOp::avg,  ReduceOp::product,           ReduceOp::min, ReduceOp::max, ReduceOp::band,
          ReduceOp::bor, ReduceOp::bxor, ReduceOp::premul_sum(factor)};
}

inline bool supports(ReduceOp op, DType dtype) {
  try {
    check(op, dtype);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace hookline::testing
