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
#include "group/flight_record_ring.hpp"

namespace hookline::group {
namespace {

std::atomic<int> wake_fd = -1;
struct sigaction previous_action{};

struct Rings {
  std::mutex mutex;
  std::vector<FlightRecordRing*> list;
};
std::atomic<Rings*> rings = new Rings;  // leaked: the thread may still read it while the process exits

void handle_signal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  const int fd = wake_fd.load();
  if (fd >= 0) static_cast<void>(eventfd_write(fd, 1));
  if (previous_action.sa_flags & SA_SIGINFO) {
    if (previous_action.sa_sigaction) previous_action.sa_sigaction(number, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(number);
  }
  errno = saved;
}

void run_dump_thread(int fd) {
  for (eventfd_t count = 0;;) {
    if (eventfd_read(fd, &count) != 0) {
      if (errno == EINTR) continue;
      return;
    }
    Rings& all = *rings.load();
    const std::lock_guard lock(all.mutex);
    for (const FlightRecordRing* ring : all.list) ring->try_dump("SIGUSR1");
  }
}

// A forked child has no dump thread and must not signal its parent's eventfd.
void reset_in_child() {
  wake_fd = -1;
  rings = new Rings;
}

/// Requires the lock of the rings.
void start_dump_thread() {
  if (wake_fd.load() >= 0) return;
  const int fd = eventfd(0, EFD_CLOEXEC);
  if (fd < 0) return;  // dumps on errors and on request still work
  wake_fd = fd;
  core::start_thread("hookline-dump", [fd] { run_dump_thread(fd); }).detach();
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, &reset_in_child);
    struct sigaction action{};
    action.sa_sigaction = &handle_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGUSR1, &action, &previous_action);
  });
}

}  // namespace

void register_signal_dump(FlightRecordRing* ring) {
  Rings& all = *rings.load();
  const std::lock_guard lock(all.mutex);
  all.list.push_back(ring);
  start_dump_thread();
}

void unregister_signal_dump(FlightRecordRing* ring) {
  Rings& all = *rings.load();
  const std::lock_guard lock(all.mutex);
  all.list.erase(std::remove(all.list.begin(), all.list.end(), ring), all.list.end());
}

}  // namespace hookline::group
