// Gram-Schmidt, a column at a time.
#pragma once

#include <cstddef>

#include "kernel/target.hpp"

namespace hookline::kernel {

enum class Column { good, vanished, not_finite };

/// Takes what columns 0 to k - 1 have of column k out of it, and divides it by its norm plus epsilon. The columns have
/// `rows` elements each and lie one behind the other; those before have been through this. In double precision, with
/// the same bits on every target. Where nothing but rounding would be left the column becomes zero; one that is not
/// finite is left as it comes.
Column orthonormalise(double* columns, std::size_t rows, std::size_t k, double epsilon, Target target = best_target());

}  // namespace hookline::kernel
