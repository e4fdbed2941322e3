// Dispatch of reductions by dtype, operation and target.
#include "kernel/reduce.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/reduce.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/plain_reduce-inl.hpp"
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "kernel/vector_reduce-inl.hpp"
#endif

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

template <class T, Kind K>
void reduce_as(const ReduceCall& call, std::size_t begin, std::size_t end) {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if constexpr (std::is_floating_point_v<T> || kIsHalf<T>) return reduce_vectors<T, K>(call, begin, end);
#endif
  return reduce_plain<T, K>(call, begin, end);
}

template <class T>
void reduce_type(const ReduceCall& call, std::size_t begin, std::size_t end) {
  if constexpr (!std::is_same_v<T, bool>) {
    switch (call.kind) {
      case Kind::sum: return reduce_as<T, Kind::sum>(call, begin, end);
      case Kind::product: return reduce_as<T, Kind::product>(call, begin, end);
      case Kind::min: return reduce_as<T, Kind::min>(call, begin, end);
      case Kind::max: return reduce_as<T, Kind::max>(call, begin, end);
      default: break;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    switch (call.kind) {
      case Kind::band: return reduce_plain<T, Kind::band>(call, begin, end);
      case Kind::bor: return reduce_plain<T, Kind::bor>(call, begin, end);
      default: return reduce_plain<T, Kind::bxor>(call, begin, end);
    }
  }
}

// Does not use visit_dtype: its instantiations would be shared between targets, and the linker would keep only one.
void reduce_range(DType dtype, const ReduceCall& call, std::size_t begin, std::size_t end) {
  switch (dtype) {
    case DType::f64: return reduce_type<double>(call, begin, end);
    case DType::f32: return reduce_type<float>(call, begin, end);
    case DType::f16: return reduce_type<Float16>(call, begin, end);
    case DType::bf16: return reduce_type<BFloat16>(call, begin, end);
    case DType::i8: return reduce_type<std::int8_t>(call, begin, end);
    case DType::u8: return reduce_type<std::uint8_t>(call, begin, end);
    case DType::i16: return reduce_type<std::int16_t>(call, begin, end);
    case DType::i32: return reduce_type<std::int32_t>(call, begin, end);
    case DType::i64: return reduce_type<std::int64_t>(call, begin, end);
    case DType::boolean: return reduce_type<bool>(call, begin, end);
  }
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {
namespace {

using Kind = ReduceOp::Kind;

// Maps avg and premul_sum to sum, and ops on bool to bitwise ops.
Kind plain_kind(Kind kind, DType dtype) {
  if (kind == Kind::avg || kind == Kind::premul_sum) kind = Kind::sum;
  if (dtype != DType::boolean) return kind;
  if (kind == Kind::sum || kind == Kind::max) return Kind::bor;
  if (kind == Kind::product || kind == Kind::min) return Kind::band;
  return kind;
}

// Multiplying by the inverse of a power of two is exact, so it equals the slower division. Plain loops always divide.
Epilogue epilogue_of(ReduceOp op, std::size_t ranks) {
  if (op.kind() != Kind::avg || ranks == 1) return Epilogue::none;
  return std::has_single_bit(ranks) ? Epilogue::multiply : Epilogue::divide;
}

bool may_stream(StoreMode store_mode, std::span<const std::byte* const> sources,
                std::span<std::byte* const> destinations, std::size_t bytes) {
  if (destinations.empty() || !should_stream(store_mode, bytes * destinations.size())) return false;
  const auto offset = [](const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p) % 64; };
  return std::ranges::all_of(destinations, [&](const std::byte* destination) {
    return offset(destination) == offset(destinations[0]) && std::ranges::find(sources, destination) == sources.end();
  });
}

}  // namespace

void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, std::size_t count, StoreMode store_mode, Target target) {
  check(op, dtype);
  const ReduceCall call{.sources = sources.data(),
                        .source_count = sources.size(),
                        .destinations = destinations.data(),
                        .destination_count = destinations.size(),
                        .kind = plain_kind(op.kind(), dtype),
                        .premultiply = op.kind() == Kind::premul_sum,
                        .stream = may_stream(store_mode, sources, destinations, count * size_of(dtype)),
                        .epilogue = epilogue_of(op, sources.size()),
                        .factor = op.factor(),
                        .divisor = static_cast<double>(sources.size())};
  HOOKLINE_DISPATCH(target, reduce_range)(dtype, call, 0, count);
}

}  // namespace hookline::kernel
#endif
