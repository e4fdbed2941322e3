// ReduceCall: the arguments of a reduction, passed to the code of each target.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hookline/core/reduce_op.hpp>

namespace hookline::kernel {

/// The operation on the result.
enum class Epilogue : std::uint8_t { none, multiply, divide };

/// `kind` is never avg or premul_sum: they are sums with a divisor or a factor.
struct ReduceCall {
  const std::byte* const* sources;
  std::size_t source_count;
  std::byte* const* destinations;
  std::size_t destination_count;
  ReduceOp::Kind kind;
  bool premultiply;
  bool stream;  // use streaming stores
  Epilogue epilogue;
  double factor;   // of every source
  double divisor;  // of the result
};

}  // namespace hookline::kernel
