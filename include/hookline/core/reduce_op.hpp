// Reduction operations and their arithmetic.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include <hookline/core/dtype.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// A reduction operation: one of the constants below or premul_sum(factor). The default is `sum`.
///
/// Elements are combined in rank order. f16 and bf16 accumulate in float32 and are rounded once at the end; integers
/// wrap around; a boolean sum is "or", a boolean product is "and". A NaN result is the quiet NaN without payload. min
/// and max propagate NaN; of equal values (0 and -0) the value of the lowest rank is taken.
class ReduceOp {
 public:
  enum class Kind : std::uint8_t { sum, avg, product, min, max, band, bor, bxor, premul_sum };

  /// `avg` divides the sum by the number of ranks; integer results are truncated towards zero.
  static const ReduceOp sum, avg, product, min, max, band, bor, bxor;
  /// Multiplies every rank's elements by `factor`, then adds. Floating-point dtypes only.
  static constexpr ReduceOp premul_sum(double factor) noexcept { return ReduceOp(Kind::premul_sum, factor); }

  constexpr ReduceOp() noexcept = default;
  /// `factor` applies to premul_sum only.
  constexpr explicit ReduceOp(Kind kind, double factor = 1.0) noexcept
      : factor_(kind == Kind::premul_sum ? factor : 1.0), kind_(kind) {}

  constexpr Kind kind() const noexcept { return kind_; }
  /// Returns the factor of premul_sum; 1 for other ops.
  constexpr double factor() const noexcept { return factor_; }

  friend constexpr bool operator==(ReduceOp a, ReduceOp b) noexcept {
    return a.kind_ == b.kind_ && std::bit_cast<std::uint64_t>(a.factor_) == std::bit_cast<std::uint64_t>(b.factor_);
  }

 private:
  double factor_ = 1.0;
  Kind kind_ = Kind::sum;
};

inline constexpr ReduceOp ReduceOp::sum{Kind::sum};
inline constexpr ReduceOp ReduceOp::avg{Kind::avg};
inline constexpr ReduceOp ReduceOp::product{Kind::product};
inline constexpr ReduceOp ReduceOp::min{Kind::min};
inline constexpr ReduceOp ReduceOp::max{Kind::max};
inline constexpr ReduceOp ReduceOp::band{Kind::band};
inline constexpr ReduceOp ReduceOp::bor{Kind::bor};
inline constexpr ReduceOp ReduceOp::bxor{Kind::bxor};

/// Returns "sum", "avg", "product", "min", "max", "band", "bor", "bxor" or "premul_sum".
HOOKLINE_EXPORT std::string_view name(ReduceOp op) noexcept;

/// Throws InvalidArgument if `op` does not support `dtype`: band, bor and bxor support integers and bool, avg supports
/// floating point and integers, premul_sum supports floating point.
HOOKLINE_EXPORT void check(ReduceOp op, DType dtype);

}  // namespace hookline
