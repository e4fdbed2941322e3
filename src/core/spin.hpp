// The processor's hint for spin-wait loops.
#pragma once

namespace hookline::core {

/// Executes the processor's spin-wait hint (x86 PAUSE, Arm YIELD); a no-op on other processors.
inline void spin_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace hookline::core
