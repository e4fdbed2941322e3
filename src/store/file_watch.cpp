// inotify behind FileWatch.
#include "store/file_watch.hpp"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>

namespace hookline::store {

namespace {

/// How long a change may go unnoticed: where the kernel tells of changes, and where it does not.
constexpr Milliseconds kWatchedPeriod{100};
constexpr Milliseconds kUnwatchedPeriod{10};

}  // namespace

FileWatch::FileWatch(const std::string& path) : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (fd_ && ::inotify_add_watch(fd_.get(), path.c_str(), IN_MODIFY) < 0) fd_ = core::Descriptor();
}

void FileWatch::wait(Milliseconds most) {
  const Milliseconds period = std::min(most, fd_ ? kWatchedPeriod : kUnwatchedPeriod);
  pollfd entry{fd_.get(), POLLIN, 0};
  if (::poll(&entry, fd_ ? 1 : 0, static_cast<int>(period.count())) <= 0) return;
  alignas(inotify_event) char events[4096];
  while (::read(fd_.get(), events, sizeof events) > 0) {
  }
}

}  // namespace hookline::store
