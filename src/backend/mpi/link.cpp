// Duplicating communicators, and getting to know the processes behind them.
#include "backend/mpi/link.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/mpi/leftovers.hpp"
#include "backend/mpi/session.hpp"

namespace hookline::mpi {
namespace {

constexpr int kNumberBits = 15;
// Of mail, of messages between two ranks, and of lanes: headers and data of a lane share one.
constexpr std::size_t kComms = 2 + kEngineLanes;

struct Identity {
  std::uint64_t host = 0;  ///< of the kernel and the namespace that numbers its processes
  std::int64_t process = 0;
};

Identity own_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::error_code ignored;
  const std::string space = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  return {std::hash<std::string>()(boot + space), ::getpid()};
}

int available_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

Link::Link(MPI_Comm base) : base_(base) {
  check_call(MPI_Comm_set_errhandler(base, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_call(MPI_Comm_rank(base, &rank_), "MPI_Comm_rank");
  check_call(MPI_Comm_size(base, &size_), "MPI_Comm_size");
  left_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(size_));  // NOLINT(modernize-avoid-c-arrays)
  if (size_ == 1) return;
  int* bound = nullptr;
  int found = 0;
  check_call(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
  if (found == 0 || *bound < (2 << kNumberBits) - 1) {
    throw Unsupported("the mpi engine needs tags of 16 bits, and this MPI has fewer");
  }
  for (std::size_t i = 0; i < kComms; ++i) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_call(MPI_Comm_dup(base, &comm), "MPI_Comm_dup");
    check_call(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    comms_.push_back(comm);
  }
  meet();
}

Link::~Link() {
  for (const int process : processes_) {
    if (process >= 0) ::close(process);
  }
}

void Link::meet() {
  const Identity own = own_identity();
  std::vector<Identity> all(static_cast<std::size_t>(size_));
  check_call(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, comms_[0]), "MPI_Allgather");
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
  return static_cast<int>(address.number & kMask) | (address.channel & 1) << kNumberBits;
}

bool Link::is_copied(int channel) noexcept { return channel < 2 || channel % 2 == 0; }

bool Link::is_dead(int rank) const noexcept {
  if (rank < 0 || processes_.empty()) return false;
  pollfd process{processes_[static_cast<std::size_t>(rank)], POLLIN, 0};
  return process.fd >= 0 && ::poll(&process, 1, 0) == 1 && (process.revents & POLLIN) != 0;
}

bool Link::drain() {
  if (!draining_.load()) return false;
  const Calling calling;
  if (!calling) return false;
  bool any = false;
  for (std::size_t i = 2; i < comms_.size(); ++i) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms_[i], &found, &message, &status) != MPI_SUCCESS || found == 0) {
      continue;
    }
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Leftover leftover;
    leftover.memory =
        std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));  // NOLINT(modernize-avoid-c-arrays)
    if (MPI_Imrecv(leftover.memory.get(), bytes, MPI_BYTE, &message, &leftover.request) == MPI_SUCCESS) {
      keep(std::move(leftover));
    }
    any = true;
  }
  return any;
}

}  // namespace hookline::mpi
