// Opens pidfds of the peers on this host, and receives and discards data of failed groups.
#include "backend/mpi/link.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/mpi/leftovers.hpp"
#include "backend/mpi/session.hpp"

namespace hookline::mpi {
namespace {

constexpr int kNumberBits = 15;
constexpr int kMostChannels = 2 + 2 * kEngineLanes;  // control, send/recv data, and two for each lane
constexpr int kLargestTag = (kMostChannels << kNumberBits) - 1;

int available_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

Link::Link(MPI_Comm own) : data_(own) {
  check_call(MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_call(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
  check_call(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
  left_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(size_));  // NOLINT(modernize-avoid-c-arrays)
  if (size_ == 1) return;
  int* bound = nullptr;
  int found = 0;
  check_call(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
  if (found == 0 || *bound < kLargestTag) {
    throw Unsupported(fmt::format("mpi: MPI_TAG_UB is too small: expected at least {}, got {}", kLargestTag,
                                  found == 0 ? -1 : *bound));
  }
  get_to_know(introduce(data_));
  check_call(MPI_Comm_dup(data_, &mail_), "MPI_Comm_dup");  // inherits the error handler
}

Link::~Link() {
  for (const int process : processes_) {
    if (process >= 0) ::close(process);
  }
}

void Link::get_to_know(const std::vector<Identity>& all) {
  const Identity own = all[static_cast<std::size_t>(rank_)];
  int here = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const bool same_host = all[r].host == own.host;
    here += same_host ? 1 : 0;
    const bool other = same_host && r != static_cast<std::size_t>(rank_);
    processes_.push_back(other ? static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(all[r].process), 0U))
                               : -1);
  }
  crowded_ = here > available_cores();
}

int Link::tag(MessageAddress address) noexcept {
  constexpr std::uint64_t kMask = (1U << kNumberBits) - 1;
  return static_cast<int>(address.number & kMask) | address.channel << kNumberBits;
}

bool Link::is_copied(int channel) noexcept { return channel == 1 || channel % 2 == 0; }

bool Link::is_dead(int rank) const noexcept {
  if (rank < 0 || processes_.empty()) return false;
  pollfd process{processes_[static_cast<std::size_t>(rank)], POLLIN, 0};
  return process.fd >= 0 && ::poll(&process, 1, 0) == 1 && (process.revents & POLLIN) != 0;
}

bool Link::drain() {
  if (!draining_.load()) return false;
  const Calling calling;
  if (!calling) return false;
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, data_, &found, &message, &status) != MPI_SUCCESS || found == 0) {
    return false;
  }
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  Leftover leftover;
  leftover.memory = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));  // NOLINT(modernize-avoid-c-arrays)
  if (MPI_Imrecv(leftover.memory.get(), bytes, MPI_BYTE, &message, &leftover.request) == MPI_SUCCESS) {
    keep(std::move(leftover));
  }
  return true;
}

}  // namespace hookline::mpi
