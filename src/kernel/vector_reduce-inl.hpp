// Vectorized floating-point reductions.
#if defined(HOOKLINE_VECTOR_REDUCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HOOKLINE_VECTOR_REDUCE_INL
#undef HOOKLINE_VECTOR_REDUCE_INL
#else
#define HOOKLINE_VECTOR_REDUCE_INL
#endif

#include "kernel/float_lanes-inl.hpp"
#include "kernel/plain_reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

template <class T>
using Tag = hn::ScalableTag<AccType<T>>;
template <class T>
using Vector = hn::Vec<Tag<T>>;
template <class T>
inline constexpr std::size_t kLanesOf = hn::MaxLanes(Tag<T>());

/// Loads R registers of consecutive elements. bf16 elements are deinterleaved: even, then odd, per register pair.
template <class T, int R>
HWY_INLINE void load(const T* from, Vector<T> (&v)[R]) {
  const Tag<T> d;
  if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Repartition<std::uint32_t, Tag<T>> du;
    const hn::Repartition<std::uint16_t, Tag<T>> du16;
    for (int r = 0; r < R; r += 2) {
      const auto pair =
          hn::BitCast(du, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(from + r * kLanesOf<T>)));
      v[r] = hn::BitCast(d, hn::ShiftLeft<16>(pair));
      v[r + 1] = hn::BitCast(d, hn::And(pair, hn::Set(du, 0xffff0000u)));
    }
  } else if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, Tag<T>> dh;
    for (int r = 0; r < R; ++r)
      v[r] = hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from + r * kLanesOf<T>)));
  } else {
    for (int r = 0; r < R; ++r) v[r] = hn::LoadU(d, from + r * kLanesOf<T>);
  }
}

/// Rounds R registers to T once, before they are stored to several destinations.
template <class T, int R>
HWY_INLINE void narrow(Vector<T> (&v)[R]) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const Tag<T> d;
    const hn::Repartition<std::uint32_t, Tag<T>> du;
    for (int r = 0; r < R; r += 2) {
      const auto even = hn::ShiftRight<16>(round_to_bf16(du, hn::BitCast(du, v[r])));
      const auto odd = hn::And(round_to_bf16(du, hn::BitCast(du, v[r + 1])), hn::Set(du, 0xffff0000u));
      v[r] = hn::BitCast(d, hn::Or(even, odd));
    }
  }
}

template <class T, bool kStream, int R>
HWY_INLINE void store(Vector<T> (&v)[R], T* to) {
  const Tag<T> d;
  if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::Repartition<std::uint16_t, Tag<T>> du16;
    for (int r = 0; r < R; r += 2)
      store_lanes<kStream>(hn::BitCast(du16, v[r]), du16, reinterpret_cast<std::uint16_t*>(to + r * kLanesOf<T>));
  } else if constexpr (std::is_same_v<T, Float16>) {
    const hn::Rebind<hwy::float16_t, Tag<T>> dh;
    const hn::Rebind<std::uint16_t, Tag<T>> du16;
    for (int r = 0; r < R; ++r)
      store_lanes<kStream>(hn::BitCast(du16, hn::DemoteTo(dh, v[r])), du16,
                           reinterpret_cast<std::uint16_t*>(to + r * kLanesOf<T>));
  } else {
    for (int r = 0; r < R; ++r) store_lanes<kStream>(v[r], d, to + r * kLanesOf<T>);
  }
}

template <Kind K, class V>
HWY_INLINE V combine_vectors(V a, V b) {
  if constexpr (K == Kind::sum) {
    return hn::Add(a, b);
  } else if constexpr (K == Kind::product) {
    return hn::Mul(a, b);
  } else {
    const auto second = K == Kind::min ? hn::Lt(b, a) : hn::Lt(a, b);
    return hn::IfThenElse(hn::Or(second, hn::IsNaN(b)), b, a);
  }
}

/// Reduces full blocks of R registers from `begin` and returns the first index not reduced. With kToEnd also reduces
/// the tail, staged in a full block. N is the compile-time number of sources and destinations, or 0.
template <class T, Kind K, int R, int N, bool kStream, bool kToEnd>
HWY_INLINE std::size_t reduce_blocks(const ReduceCall& call, std::size_t begin, std::size_t end) {
  using W = AccType<T>;
  const Tag<T> d;
  constexpr std::size_t kBlock = R * kLanesOf<T>;
  const std::size_t sources = N ? N : call.source_count;
  const std::size_t destinations = N ? N : call.destination_count;
  [[maybe_unused]] const Vector<T> factor = hn::Set(d, static_cast<W>(call.factor));
  [[maybe_unused]] const Vector<T> divisor = hn::Set(d, static_cast<W>(call.divisor));
  [[maybe_unused]] const Vector<T> inverse = hn::Set(d, static_cast<W>(1 / call.divisor));
  const Vector<T> nan = hn::Set(d, std::numeric_limits<W>::quiet_NaN());
  T staged[kBlock] = {};
  std::size_t i = begin;
  for (; kToEnd ? i < end : end - i >= kBlock; i += kBlock) {
    const bool partial = kToEnd && end - i < kBlock;
    Vector<T> v[R];
    for (std::size_t s = 0; s < sources; ++s) {
      const T* source = reinterpret_cast<const T*>(call.sources[s]) + i;
      if (partial) {
        __builtin_memcpy(staged, source, (end - i) * sizeof(T));
        source = staged;
      }
      Vector<T> w[R];
      load<T>(source, w);
      if (K == Kind::sum && call.premultiply)
        for (int r = 0; r < R; ++r) w[r] = hn::Mul(w[r], factor);
      for (int r = 0; r < R; ++r) v[r] = s == 0 ? w[r] : combine_vectors<K>(v[r], w[r]);
    }
    if constexpr (K == Kind::sum) {
      if (call.epilogue == Epilogue::multiply)
        for (int r = 0; r < R; ++r) v[r] = hn::Mul(v[r], inverse);
      if (call.epilogue == Epilogue::divide)
        for (int r = 0; r < R; ++r) v[r] = hn::Div(v[r], divisor);
    }
    for (int r = 0; r < R; ++r) v[r] = hn::IfThenElse(hn::IsNaN(v[r]), nan, v[r]);
    narrow<T>(v);
    for (std::size_t t = 0; t < destinations; ++t) {
      T* destination = reinterpret_cast<T*>(call.destinations[t]) + i;
      store<T, kStream>(v, partial ? staged : destination);
      if (partial) __builtin_memcpy(destination, staged, (end - i) * sizeof(T));
    }
  }
  return kToEnd ? end : i;
}

template <class T, Kind K>
HWY_NOINLINE std::size_t reduce_to_end(const ReduceCall& call, std::size_t begin, std::size_t end) {
  return reduce_blocks<T, K, 2, 0, false, true>(call, begin, end);
}

template <class T, Kind K>
HWY_NOINLINE void reduce_vectors(const ReduceCall& call, std::size_t begin, std::size_t end) {
  constexpr int kRegisters = 4;
  if (call.stream) {
    // Reduces up to the first cache-line boundary; all destinations have the same offset.
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(call.destinations[0]) % 64;
    const std::size_t first = (64 - offset) % 64 / sizeof(T);
    begin = reduce_to_end<T, K>(call, begin, first < end ? first : end);
    begin = reduce_blocks<T, K, kRegisters, 0, true, false>(call, begin, end);
    hwy::FlushStream();
  } else if (call.source_count == 2 && call.destination_count == 2) {
    begin = reduce_blocks<T, K, kRegisters, 2, false, false>(call, begin, end);
  } else {
    begin = reduce_blocks<T, K, kRegisters, 0, false, false>(call, begin, end);
  }
  if (begin < end) reduce_to_end<T, K>(call, begin, end);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
