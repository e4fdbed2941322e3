// Counts the entries of /proc/self/fd, and raises the soft limit by the missing number.
#include "backend/shm/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::shm {
namespace {

// For the sockets of the fd exchange, and for files that the program opens meanwhile.
constexpr std::size_t kSpare = 8;

// Returns nullopt if /proc cannot be read. EMFILE means that all descriptors are in use.
std::optional<std::size_t> open_descriptors(rlim_t limit) {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  if (error.value() == EMFILE) return limit;
  std::size_t count = 0;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  if (error) return std::nullopt;
  return count - 1;  // minus the iterator's own
}

}  // namespace

void reserve_descriptors(std::size_t ranks, const std::string& group) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const std::optional<std::size_t> open = open_descriptors(limit.rlim_cur);
  if (!open) return;
  const rlim_t needed = *open + kept_descriptors(ranks) + kSpare;
  const rlim_t wanted = *open + max_descriptors(ranks) + kSpare;
  if (wanted <= limit.rlim_cur) return;
  if (needed <= limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = std::min(wanted, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0 || needed <= limit.rlim_cur) return;
  }
  throw ResourceError(fmt::format(
      "{}: no file descriptors for {} ranks: {} are open and {} more are needed, but the limit is {} (soft) "
      "and {} (hard). Raise the hard limit to {} or more (ulimit -Hn, LimitNOFILE= of systemd, --ulimit "
      "nofile= of Docker).",
      group, ranks, *open, needed - *open, limit.rlim_cur, limit.rlim_max, wanted));
}

}  // namespace hookline::shm
