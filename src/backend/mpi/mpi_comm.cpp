// Opens pidfds of the peers on this host, and receives and discards data of failed groups.
#include "backend/mpi/mpi_comm.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/mpi/orphaned_requests.hpp"
#include "backend/mpi/session.hpp"

namespace hookline::mpi {
namespace {

constexpr int kSequenceBits = 15;
constexpr int kMaxChannels = 2 + 2 * kNumLanes;  // control, send/recv data, and two for each lane
constexpr int kMaxTag = (kMaxChannels << kSequenceBits) - 1;

int available_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

MpiComm::MpiComm(MPI_Comm comm_handle) : data_comm_(comm_handle) {
  check_call(MPI_Comm_set_errhandler(data_comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_call(MPI_Comm_rank(data_comm_, &rank_), "MPI_Comm_rank");
  check_call(MPI_Comm_size(data_comm_, &size_), "MPI_Comm_size");
  departed_ =
      std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(size_));  // NOLINT(modernize-avoid-c-arrays)
  if (size_ == 1) return;
  int* bound = nullptr;
  int found = 0;
  check_call(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
  if (found == 0 || *bound < kMaxTag) {
    throw Unsupported(
        fmt::format("mpi: MPI_TAG_UB is too small: expected at least {}, got {}", kMaxTag, found == 0 ? -1 : *bound));
  }
  open_peer_pidfds(exchange_identities(data_comm_));
  check_call(MPI_Comm_dup(data_comm_, &control_comm_), "MPI_Comm_dup");  // inherits the error handler
}

MpiComm::~MpiComm() {
  for (const int process : pidfds_) {
    if (process >= 0) ::close(process);
  }
}

void MpiComm::open_peer_pidfds(const std::vector<Identity>& identities) {
  const Identity own = identities[static_cast<std::size_t>(rank_)];
  int local_ranks = 0;
  for (std::size_t r = 0; r < identities.size(); ++r) {
    const bool same_host = identities[r].host_hash == own.host_hash;
    local_ranks += same_host ? 1 : 0;
    const bool other = same_host && r != static_cast<std::size_t>(rank_);
    pidfds_.push_back(other ? static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(identities[r].pid), 0U))
                            : -1);
  }
  oversubscribed_ = local_ranks > available_cores();
}

int MpiComm::tag(MessageTag message_tag) noexcept {
  constexpr std::uint64_t kMask = (1U << kSequenceBits) - 1;
  return static_cast<int>(message_tag.sequence & kMask) | message_tag.channel << kSequenceBits;
}

bool MpiComm::is_buffered(int channel) noexcept { return channel == 1 || channel % 2 == 0; }

bool MpiComm::is_dead(int rank) const noexcept {
  if (rank < 0 || pidfds_.empty()) return false;
  pollfd pidfd{pidfds_[static_cast<std::size_t>(rank)], POLLIN, 0};
  return pidfd.fd >= 0 && ::poll(&pidfd, 1, 0) == 1 && (pidfd.revents & POLLIN) != 0;
}

bool MpiComm::drain() {
  if (!draining_.load()) return false;
  const MpiCallGuard guard;
  if (!guard) return false;
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, data_comm_, &found, &message, &status) != MPI_SUCCESS || found == 0) {
    return false;
  }
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  OrphanedRequest orphan;
  orphan.memory = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes));  // NOLINT(modernize-avoid-c-arrays)
  if (MPI_Imrecv(orphan.memory.get(), bytes, MPI_BYTE, &message, &orphan.request) == MPI_SUCCESS) {
    retain(std::move(orphan));
  }
  return true;
}

}  // namespace hookline::mpi
