// SIGUSR1 dumps all flight recorders. The handler is async-signal-safe: it wakes a thread, which writes the dumps.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <vector>

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/thread.hpp"
#include "group/record_ring.hpp"

namespace hookline::group {
namespace {

std::atomic<int> wake_fd = -1;
struct sigaction before{};

struct Rings {
  std::mutex mutex;
  std::vector<RecordRing*> list;
};
std::atomic<Rings*> rings = new Rings;  // leaked: the thread may still read it while the process exits

void handle(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  const int fd = wake_fd.load();
  if (fd >= 0) static_cast<void>(eventfd_write(fd, 1));
  if (before.sa_flags & SA_SIGINFO) {
    if (before.sa_sigaction) before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  }
  errno = saved;
}

void watch(int fd) {
  for (eventfd_t count = 0;;) {
    if (eventfd_read(fd, &count) != 0) {
      if (errno == EINTR) continue;
      return;
    }
    Rings& all = *rings.load();
    const std::lock_guard lock(all.mutex);
    for (const RecordRing* ring : all.list) ring->try_dump("SIGUSR1");
  }
}

// A forked child has no dump thread and must not signal its parent's eventfd.
void renew_in_child() {
  wake_fd = -1;
  rings = new Rings;
}

/// Requires the lock of the rings.
void start_watching() {
  if (wake_fd.load() >= 0) return;
  const int fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return;  // dumps on errors and on request still work
  wake_fd = fd;
  core::start_thread("hookline-dump", [fd] { watch(fd); }).detach();
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, &renew_in_child);
    struct sigaction action{};
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGUSR1, &action, &before);
  });
}

}  // namespace

void dump_at_signal(RecordRing* ring) {
  Rings& all = *rings.load();
  const std::lock_guard lock(all.mutex);
  all.list.push_back(ring);
  start_watching();
}

void forget_at_signal(RecordRing* ring) {
  Rings& all = *rings.load();
  const std::lock_guard lock(all.mutex);
  all.list.erase(std::remove(all.list.begin(), all.list.end(), ring), all.list.end());
}

}  // namespace hookline::group
