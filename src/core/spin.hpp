// The processor's hint for spin-wait loops.
#pragma once

namespace hookline::core {

/// Tells the processor that this thread spins: it saves power and leaves the core to its sibling hyperthread. Does
/// nothing on processors without such an instruction.
inline void spin_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace hookline::core
