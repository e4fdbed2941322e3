// Posts, polls and cancels MPI requests.
#include "backend/mpi/mpi_request.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/mpi/orphaned_requests.hpp"
#include "backend/mpi/session.hpp"

namespace hookline::mpi {
namespace {

constexpr int kMaxSpins = 1000;  // polls before the first yield, about 0.1 ms
constexpr std::chrono::microseconds kYieldTime{1000};
constexpr std::chrono::microseconds kShortSleep{50};
constexpr std::chrono::microseconds kLongSleep{1000};
// Period after the goodbye of a peer in which its earlier messages may still arrive.
constexpr std::chrono::milliseconds kDepartedGrace{200};
constexpr std::chrono::seconds kReleaseTimeout{5};

/// The backoff between polls of MPI_Test: spin, then yield, then sleep. MPI has no way to block on a request without
/// spinning.
class PollBackoff {
 public:
  PollBackoff(WaitPolicy policy, bool oversubscribed)
      : spins_(oversubscribed ? kMaxSpins - 4 : 0), spin_(policy == WaitPolicy::spin) {}

  void pause() {
    if (spin_ && ++spins_ < kMaxSpins) return;
    const Clock::time_point now = Clock::now();
    if (start_ == Clock::time_point()) start_ = now;
    if (spin_ && now - start_ < kYieldTime) {
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, spin_ ? kShortSleep * 2 : kLongSleep);
  }

 private:
  int spins_;
  const bool spin_;
  Clock::time_point start_;
  std::chrono::microseconds sleep_ = kShortSleep;
};

}  // namespace

MpiRequest::MpiRequest(std::shared_ptr<MpiComm> comm, Kind kind, int peer, MessageTag tag, void* data,
                       std::size_t bytes)
    : comm_(std::move(comm)), kind_(kind), peer_(peer), source_(peer) {
  const MpiCallGuard guard;
  if (!guard) throw_peer_lost(guard.reason());
  if (comm_->closed()) throw_peer_lost("this rank left the group");
  const auto count = static_cast<int>(bytes);  // callers send large data in chunks of some MiB
  const MPI_Comm mpi_comm = comm_->comm(tag.channel);
  const int mpi_tag = MpiComm::tag(tag);
  int code = MPI_SUCCESS;
  if (kind == Kind::send) {
    if (MpiComm::is_buffered(tag.channel)) {
      copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);  // NOLINT(modernize-avoid-c-arrays)
      std::memcpy(copy_.get(), data, bytes);
      data = copy_.get();
    }
    code = MPI_Isend(data, count, MPI_BYTE, peer, mpi_tag, mpi_comm, &request_);
  } else {
    code = MPI_Irecv(data, count, MPI_BYTE, peer, mpi_tag, mpi_comm, &request_);
  }
  if (code != MPI_SUCCESS) throw_peer_lost(error_text(code));
}

MpiRequest::~MpiRequest() {
  if (!completed_) release();
}

void MpiRequest::throw_peer_lost(const std::string& reason) const {
  if (peer_ < 0) throw PeerLost(reason);
  throw PeerLost(fmt::format("rank {}: {}", peer_, reason), {peer_});
}

bool MpiRequest::test() {
  if (completed_) return true;
  const MpiCallGuard guard;
  if (!guard) throw_peer_lost(guard.reason());
  int done = 0;
  MPI_Status status;
  const int code = MPI_Test(&request_, &done, &status);
  if (code != MPI_SUCCESS) {
    completed_ = request_ == MPI_REQUEST_NULL;
    throw_peer_lost(error_text(code));
  }
  if (done == 0) return false;
  completed_ = true;
  if (kind_ == Kind::receive) source_ = status.MPI_SOURCE;
  return true;
}

bool MpiRequest::wait(WaitPolicy policy) {
  PollBackoff backoff(policy, comm_->oversubscribed());
  for (;;) {
    if (test()) return true;
    if (interrupted_.load(std::memory_order_relaxed) && interrupted_.exchange(false)) return false;
    if (comm_->closed()) throw_peer_lost("this rank left the group");
    if (comm_->has_departed(peer_)) {
      const Clock::time_point now = Clock::now();
      if (departed_at_ == Clock::time_point()) departed_at_ = now;
      if (now - departed_at_ > kDepartedGrace) throw_peer_lost("it left the group");
    }
    backoff.pause();
  }
}

// Returns when MPI no longer accesses the caller's buffer. An unmatched receive is cancelled. A matched receive
// completes soon, since the sender keeps its buffer until then. A send completes because a peer that cancelled its
// receive drains it.
void MpiRequest::release() noexcept {
  try {
    if (copy_) {
      if (!is_send_complete()) retain({request_, std::move(copy_)});
    } else {
      cancel();
      if (!is_done()) wait_or_poison();
    }
  } catch (const std::bad_alloc&) {
    poison("mpi: out of memory while cancelling a request");
  }
}

bool MpiRequest::is_send_complete() noexcept {
  const MpiCallGuard guard;
  int done = 0;
  return guard && MPI_Test(&request_, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
}

void MpiRequest::cancel() noexcept {
  const MpiCallGuard guard;
  if (guard && kind_ == Kind::receive) MPI_Cancel(&request_);
}

bool MpiRequest::is_done() noexcept {
  const MpiCallGuard guard;
  if (!guard) return true;
  int done = 0;
  return MPI_Test(&request_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
}

void MpiRequest::wait_or_poison() {
  comm_->begin_draining();
  drain_in_background(comm_);
  const Clock::time_point deadline = Clock::now() + kReleaseTimeout;
  PollBackoff backoff(WaitPolicy::spin, comm_->oversubscribed());
  while (!is_done()) {
    // The buffer can be freed: MPI reads a send buffer only to deliver it to the receiver, which is dead.
    if (kind_ == Kind::send && comm_->is_dead(peer_)) return;
    if (Clock::now() >= deadline) {
      poison(
          fmt::format("mpi: a cancelled transfer with rank {} did not complete within {} s. Hookline no longer calls "
                      "MPI in this process, because MPI would write to freed memory. Use another backend, or restart.",
                      peer_, kReleaseTimeout.count()));
      return;
    }
    while (comm_->drain()) {
    }
    backoff.pause();
  }
}

}  // namespace hookline::mpi
