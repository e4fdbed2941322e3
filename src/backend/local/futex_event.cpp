// Futex wait and wake; the count of sleepers avoids the system call when no thread sleeps.
#include "backend/local/futex_event.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace hookline::local {

void notify(RankBlock& block) noexcept {
  if (block.sleepers.load(std::memory_order_seq_cst) == 0) return;
  block.futex_word.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &block.futex_word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void notify_peers(Memory& memory) noexcept {
  for (int r = 0; r < memory.size(); ++r) {
    if (r != memory.rank()) notify(memory.block(r));
  }
}

FutexWaiter::FutexWaiter(RankBlock& block) noexcept : block_(block) {
  block_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  expected_ = block_.futex_word.load(std::memory_order_seq_cst);
}

FutexWaiter::~FutexWaiter() { block_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }

void FutexWaiter::wait(Milliseconds timeout) noexcept {
  const timespec time = {timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &block_.futex_word, FUTEX_WAIT, expected_, &time, nullptr, 0);
}

}  // namespace hookline::local
