// The communicators of one group and the state of its ranks.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <vector>

#include <hookline/backend/transport.hpp>

#include "backend/mpi/identity_exchange.hpp"

namespace hookline::mpi {

/// The communicators of one group. They are never freed: MPI would reuse the context id, and a late message of a failed
/// group would match in a new one. There are only two, since creating one takes several rounds of all ranks, which is
/// slow on oversubscribed cores.
class MpiComm {
 public:
  /// Takes over a communicator with no other users. Collective over it. Throws ResourceError.
  explicit MpiComm(MPI_Comm comm_handle);
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;
  ~MpiComm();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// True if this host runs more ranks of the group than it has cores.
  bool oversubscribed() const noexcept { return oversubscribed_; }

  /// Returns the parent communicator for new subgroups. MPI may use its tags from 1; control messages use tag 0.
  MPI_Comm parent() const noexcept { return size_ == 1 ? data_comm_ : control_comm_; }
  MPI_Comm comm(int channel) const noexcept { return channel == kControlChannel ? control_comm_ : data_comm_; }
  static int tag(MessageTag message_tag) noexcept;
  /// True if messages of the channel are sent from a copy: headers, control messages, and data of sends, which may wait
  /// long for a receiver.
  static bool is_buffered(int channel) noexcept;

  void close() noexcept { closed_.store(true); }
  bool closed() const noexcept { return closed_.load(std::memory_order_relaxed); }
  void mark_departed(int rank) noexcept { departed_[static_cast<std::size_t>(rank)].store(true); }
  bool has_departed(int rank) const noexcept { return rank >= 0 && departed_[static_cast<std::size_t>(rank)].load(); }
  /// True if the process of a rank on this host has ended; false for ranks on other hosts.
  bool is_dead(int rank) const noexcept;

  /// From now on drain() receives and discards pending data of collectives, so that the peers' sends complete.
  void begin_draining() noexcept { draining_.store(true); }
  /// Discards one message. False if none is pending.
  bool drain();

 private:
  void open_peer_pidfds(const std::vector<Identity>& identities);

  MPI_Comm data_comm_;                     ///< all channels except control; the tag holds the channel
  MPI_Comm control_comm_ = MPI_COMM_NULL;  ///< control messages, which drain() must not discard
  int rank_ = 0;
  int size_ = 1;
  bool oversubscribed_ = false;
  std::vector<int> pidfds_;                        ///< by rank: pidfd, or -1 on another host
  std::unique_ptr<std::atomic<bool>[]> departed_;  // NOLINT(modernize-avoid-c-arrays): atomics are not movable
  std::atomic<bool> closed_ = false;
  std::atomic<bool> draining_ = false;
};

}  // namespace hookline::mpi
