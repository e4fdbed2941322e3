// Futex wait and wake; the count of sleepers avoids the system call when no thread sleeps.
#include "backend/embedded/bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace hookline::embedded {

void ring(RankBlock& block) noexcept {
  if (block.sleepers.load(std::memory_order_seq_cst) == 0) return;
  block.bell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &block.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ring_peers(Memory& memory) noexcept {
  for (int r = 0; r < memory.size(); ++r) {
    if (r != memory.rank()) ring(memory.block(r));
  }
}

Sleep::Sleep(RankBlock& block) noexcept : block_(block) {
  block_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  seen_ = block_.bell.load(std::memory_order_seq_cst);
}

Sleep::~Sleep() { block_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }

void Sleep::until_rung(Milliseconds at_most) noexcept {
  const timespec time = {at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &block_.bell, FUTEX_WAIT, seen_, &time, nullptr, 0);
}

}  // namespace hookline::embedded
