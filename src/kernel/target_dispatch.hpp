// Target selection and dispatch; kernel sources include this before hwy/foreach_target.h.
//
// Highway is used header-only: its own dispatcher needs a shared library, which wheels cannot rely on.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/detect_targets.h>

#include "kernel/target.hpp"

#if HWY_TARGETS & HWY_AVX2
#define HOOKLINE_AVX2(function) N_AVX2::function
#else
#define HOOKLINE_AVX2(function) HWY_STATIC_DISPATCH(function)
#endif

#if HWY_TARGETS & HWY_AVX3
#define HOOKLINE_AVX512(function) N_AVX3::function
#else
#define HOOKLINE_AVX512(function) HOOKLINE_AVX2(function)
#endif

namespace hookline::kernel {

template <class F>
F* select_target(Target target, F* baseline, F* avx2, F* avx512) {
  return target == Target::avx512 ? avx512 : target == Target::avx2 ? avx2 : baseline;
}

}  // namespace hookline::kernel

/// Selects the variant of a HWY_NAMESPACE function for a target.
#define HOOKLINE_DISPATCH(target, function) \
  select_target(target, &HWY_STATIC_DISPATCH(function), &HOOKLINE_AVX2(function), &HOOKLINE_AVX512(function))
