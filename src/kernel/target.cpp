// Detection of the supported targets.
#include "kernel/target.hpp"

#include <array>

#include <hookline/kernel/cpu_targets.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hookline::kernel {
namespace {

constexpr std::array kAll = {Target::baseline, Target::avx2, Target::avx512};

#if defined(__x86_64__)
// clang 14 does not support the feature name "f16c".
bool has_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

// Checks all features that Highway's targets enable.
std::size_t count_supported() noexcept {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && has_f16c();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return !avx2 ? 1 : !avx512 ? 2 : 3;
#else
  return 1;
#endif
}

}  // namespace

std::span<const Target> supported_targets() noexcept {
  static const std::size_t count = count_supported();
  return std::span(kAll).first(count);
}

std::string_view name(Target target) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"baseline", "avx2", "avx512"};
  return kNames[static_cast<std::size_t>(target)];
}

}  // namespace hookline::kernel

std::vector<std::string> hookline::cpu_targets() {
  std::vector<std::string> names;
  for (const kernel::Target target : kernel::supported_targets()) names.emplace_back(kernel::name(target));
  return names;
}
