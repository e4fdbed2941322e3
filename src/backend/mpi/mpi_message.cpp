// Posts, polls and cancels MPI requests.
#include "backend/mpi/mpi_message.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/mpi/leftovers.hpp"
#include "backend/mpi/session.hpp"

namespace hookline::mpi {
namespace {

constexpr int kSpins = 1000;  // polls before the first yield, about 0.1 ms
constexpr std::chrono::microseconds kYielding{1000};
constexpr std::chrono::microseconds kShortSleep{50};
constexpr std::chrono::microseconds kLongSleep{1000};
// How long messages of a departed peer may still arrive after its goodbye.
constexpr std::chrono::milliseconds kAfterLeaving{200};
constexpr std::chrono::seconds kGivingUp{5};

/// The backoff between polls of MPI_Test: spin, then yield, then sleep. MPI has no way to block on a request without
/// spinning.
class Pace {
 public:
  Pace(bool urgent, bool crowded) : spins_(crowded ? kSpins - 4 : 0), urgent_(urgent) {}

  void pause() {
    if (urgent_ && ++spins_ < kSpins) return;
    const Clock::time_point now = Clock::now();
    if (start_ == Clock::time_point()) start_ = now;
    if (urgent_ && now - start_ < kYielding) {
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, urgent_ ? kShortSleep * 2 : kLongSleep);
  }

 private:
  int spins_;
  const bool urgent_;
  Clock::time_point start_;
  std::chrono::microseconds sleep_ = kShortSleep;
};

}  // namespace

MpiMessage::MpiMessage(std::shared_ptr<Link> link, Kind kind, int peer, MessageAddress address, void* data,
                       std::size_t bytes)
    : link_(std::move(link)), kind_(kind), peer_(peer), source_(peer) {
  const Calling calling;
  if (!calling) lost(calling.why());
  if (link_->closed()) lost("this rank left the group");
  const auto count = static_cast<int>(bytes);  // callers send large data in chunks of some MiB
  const MPI_Comm comm = link_->comm(address.channel);
  const int tag = Link::tag(address);
  int code = MPI_SUCCESS;
  if (kind == Kind::sent) {
    if (Link::is_copied(address.channel)) {
      copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);  // NOLINT(modernize-avoid-c-arrays)
      std::memcpy(copy_.get(), data, bytes);
      data = copy_.get();
    }
    code = MPI_Isend(data, count, MPI_BYTE, peer, tag, comm, &request_);
  } else {
    code = MPI_Irecv(data, count, MPI_BYTE, peer, tag, comm, &request_);
  }
  if (code != MPI_SUCCESS) lost(error_text(code));
}

MpiMessage::~MpiMessage() {
  if (!through_) give_up();
}

void MpiMessage::lost(const std::string& why) const {
  if (peer_ < 0) throw PeerLost(why);
  throw PeerLost(fmt::format("rank {}: {}", peer_, why), {peer_});
}

bool MpiMessage::test() {
  if (through_) return true;
  const Calling calling;
  if (!calling) lost(calling.why());
  int done = 0;
  MPI_Status status;
  const int code = MPI_Test(&request_, &done, &status);
  if (code != MPI_SUCCESS) {
    through_ = request_ == MPI_REQUEST_NULL;
    lost(error_text(code));
  }
  if (done == 0) return false;
  through_ = true;
  if (kind_ == Kind::received) source_ = status.MPI_SOURCE;
  return true;
}

bool MpiMessage::wait(bool urgent) {
  Pace pace(urgent, link_->crowded());
  for (;;) {
    if (test()) return true;
    if (nudged_.load(std::memory_order_relaxed) && nudged_.exchange(false)) return false;
    if (link_->closed()) lost("this rank left the group");
    if (link_->has_left(peer_)) {
      const Clock::time_point now = Clock::now();
      if (left_at_ == Clock::time_point()) left_at_ = now;
      if (now - left_at_ > kAfterLeaving) lost("it left the group");
    }
    pace.pause();
  }
}

// Returns when MPI no longer accesses the caller's buffer. An unmatched receive is cancelled. A matched receive
// completes soon, since the sender keeps its buffer until then. A send completes because a peer that cancelled its
// receive drains it.
void MpiMessage::give_up() noexcept {
  try {
    if (copy_) {
      if (!has_gone_out()) keep({request_, std::move(copy_)});
    } else {
      cancel();
      if (!is_over()) end_soon();
    }
  } catch (const std::bad_alloc&) {
    forbid("mpi: out of memory while cancelling a request");
  }
}

bool MpiMessage::has_gone_out() noexcept {
  const Calling calling;
  int done = 0;
  return calling && MPI_Test(&request_, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
}

void MpiMessage::cancel() noexcept {
  const Calling calling;
  if (calling && kind_ == Kind::received) MPI_Cancel(&request_);
}

bool MpiMessage::is_over() noexcept {
  const Calling calling;
  if (!calling) return true;
  int done = 0;
  return MPI_Test(&request_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
}

void MpiMessage::end_soon() {
  link_->begin_draining();
  linger(link_);
  const Clock::time_point deadline = Clock::now() + kGivingUp;
  Pace pace(true, link_->crowded());
  while (!is_over()) {
    // A dead peer reads nothing, and MPI accesses a send buffer only on behalf of its receiver.
    if (kind_ == Kind::sent && link_->is_dead(peer_)) return;
    if (Clock::now() >= deadline) {
      forbid(
          fmt::format("mpi: a cancelled transfer with rank {} did not complete within {} s. Hookline no longer calls "
                      "MPI in this process, because MPI would write to freed memory. Use another backend, or restart.",
                      peer_, kGivingUp.count()));
      return;
    }
    while (link_->drain()) {
    }
    pace.pause();
  }
}

}  // namespace hookline::mpi
