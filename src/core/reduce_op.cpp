// Names of reduction operations and the dtypes that they support.
#include <hookline/core/reduce_op.hpp>

#include <array>
#include <string>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"sum",  "avg", "product", "min",       "max",
                                                    "band", "bor", "bxor",    "premul_sum"};

}  // namespace

std::string_view name(ReduceOp op) noexcept { return kNames[static_cast<std::size_t>(op.kind())]; }

void check(ReduceOp op, DType dtype) {
  const char* allowed = nullptr;
  switch (op.kind()) {
    case ReduceOp::Kind::band:
    case ReduceOp::Kind::bor:
    case ReduceOp::Kind::bxor:
      if (is_floating(dtype)) allowed = "integers and bool";
      break;
    case ReduceOp::Kind::avg:
      if (dtype == DType::boolean) allowed = "floating point and integers";
      break;
    case ReduceOp::Kind::premul_sum:
      if (!is_floating(dtype)) allowed = "float64, float32, float16 and bfloat16";
      break;
    default: break;
  }
  if (!allowed) return;
  throw InvalidArgument("ReduceOp " + std::string(name(op)) + " does not support " + std::string(name(dtype)) +
                        ": expected " + allowed);
}

}  // namespace hookline
