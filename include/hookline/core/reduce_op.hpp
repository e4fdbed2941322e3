// How a reduction combines the ranks' elements.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include <hookline/core/dtype.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// One of the constants below, or `premul_sum(factor)`. A plain value; the default is `sum`.
///
/// Elements are combined in rank order. f16 and bf16 are widened to float32 and rounded once at the end; integers wrap
/// around; a boolean sum is "or", a boolean product is "and". Where a floating-point result is NaN, it is the quiet NaN
/// with no payload; min and max give NaN if any rank has one, and of equal values (0 and -0) the lowest rank's.
class ReduceOp {
 public:
  enum class Kind : std::uint8_t { sum, avg, product, min, max, band, bor, bxor, premul_sum };

  /// `avg` divides the sum by the number of ranks; for integers it rounds towards zero.
  static const ReduceOp sum, avg, product, min, max, band, bor, bxor;
  /// Multiplies every rank's elements by `factor`, then adds. Floating-point dtypes only.
  static constexpr ReduceOp premul_sum(double factor) noexcept { return ReduceOp(Kind::premul_sum, factor); }

  constexpr ReduceOp() noexcept = default;
  /// The op of a kind; `factor` counts for premul_sum only.
  constexpr explicit ReduceOp(Kind kind, double factor = 1.0) noexcept
      : factor_(kind == Kind::premul_sum ? factor : 1.0), kind_(kind) {}

  constexpr Kind kind() const noexcept { return kind_; }
  /// What premul_sum multiplies by; 1 for every other op.
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

/// "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum".
HOOKLINE_EXPORT std::string_view name(ReduceOp op) noexcept;

/// Throws InvalidArgument, saying what is allowed, if `op` cannot take elements of `dtype`: band, bor and bxor take no
/// floating point, avg takes no bool, premul_sum takes floating point only.
HOOKLINE_EXPORT void check(ReduceOp op, DType dtype);

}  // namespace hookline
