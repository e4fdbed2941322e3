// Copies for each target: vectors aligned to the destination, with cached or streaming stores.
#include "kernel/copy.hpp"

#include <cstdint>
#include <cstring>

#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, bool) {
  if (bytes) std::memcpy(to, from, bytes);
}

#else

namespace hn = hwy::HWY_NAMESPACE;

template <bool kStream>
HWY_INLINE void copy_lines(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<std::uint8_t>());
  for (std::size_t i = 0; i < bytes; i += 4 * kLanes) {
    hn::Vec<hn::ScalableTag<std::uint8_t> > v[4];
    for (std::size_t r = 0; r < 4; ++r) v[r] = hn::LoadU(d, from + i + r * kLanes);
    for (std::size_t r = 0; r < 4; ++r) {
      if constexpr (kStream) hn::Stream(v[r], d, to + i + r * kLanes);
      else hn::Store(v[r], d, to + i + r * kLanes);
    }
  }
  if constexpr (kStream) hwy::FlushStream();
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes, bool stream) {
  constexpr std::size_t kBlock = 4 * hn::MaxLanes(hn::ScalableTag<std::uint8_t>());
  const std::size_t head = (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64;
  if (bytes < head + kBlock) {
    if (bytes) std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  const std::size_t body = (bytes - head) / kBlock * kBlock;
  auto* first = reinterpret_cast<std::uint8_t*>(to + head);
  const auto* source = reinterpret_cast<const std::uint8_t*>(from + head);
  if (stream) copy_lines<true>(first, source, body);
  else copy_lines<false>(first, source, body);
  std::memcpy(to + head + body, from + head + body, bytes - head - body);
}

#endif

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

void copy(std::byte* to, const std::byte* from, std::size_t bytes, StoreMode store_mode, Target target) {
  HOOKLINE_DISPATCH(target, copy_bytes)(to, from, bytes, should_stream(store_mode, bytes));
}

}  // namespace hookline::kernel
#endif
