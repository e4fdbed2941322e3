// Posting, looking, and giving up.
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

constexpr int kSpins = 1000;  // looks before the first yield, about a tenth of a millisecond
constexpr std::chrono::microseconds kYielding{1000};
constexpr std::chrono::microseconds kShortSleep{50};
constexpr std::chrono::microseconds kLongSleep{1000};
// How long what a rank sent before it left may be on its way after the news of that.
constexpr std::chrono::milliseconds kAfterLeaving{200};
constexpr std::chrono::seconds kGivingUp{5};

// How to pass the time between two looks: looking is the only way to learn that something came.
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
  const auto count = static_cast<int>(bytes);  // large data come in parts of some MiB
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

// Returns when MPI does not touch the caller's memory any more. A receive that nothing was sent for is cancelled; one
// that is under way ends soon, as the peer's memory is still there: it waits for the same. A send waits for a receiver,
// and gets one: a peer that gave up drains what is sent to it.
void MpiMessage::give_up() noexcept {
  try {
    if (copy_) {
      if (!has_gone_out()) keep({request_, std::move(copy_)});
    } else {
      cancel();
      if (!is_over()) end_soon();
    }
  } catch (const std::bad_alloc&) {
    forbid("there was no memory to give up a message of MPI's");
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
    // The process of a dead rank reads nothing, and MPI itself touches a sender's memory only for it.
    if (kind_ == Kind::sent && link_->is_dead(peer_)) return;
    if (Clock::now() >= deadline) {
      forbid(
          fmt::format("a transfer of MPI's with rank {} was given up and cannot be ended: Hookline calls MPI no more "
                      "in this process, "
                      "as it would write to memory that is not its own; use another backend, or start again",
                      peer_));
      return;
    }
    while (link_->drain()) {
    }
    pace.pause();
  }
}

}  // namespace hookline::mpi
