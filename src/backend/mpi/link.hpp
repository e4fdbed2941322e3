// The communicators of one group and the state of its ranks.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <vector>

#include <hookline/backend/engine.hpp>

#include "backend/mpi/introduce.hpp"

namespace hookline::mpi {

/// The communicators of one group. They are never freed: MPI would reuse the context id, and a late message of a failed
/// group would match in a new one. There are only two, since creating one takes several rounds of all ranks, which is
/// slow on oversubscribed cores.
class Link {
 public:
  /// Takes over a communicator with no other users. Collective over it. Throws ResourceError.
  explicit Link(MPI_Comm own);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// True if this host runs more ranks of the group than it has cores.
  bool crowded() const noexcept { return crowded_; }

  /// The communicator to create subgroups from. MPI may use its tags from 1 for that; control messages use tag 0.
  MPI_Comm parent() const noexcept { return size_ == 1 ? data_ : mail_; }
  MPI_Comm comm(int channel) const noexcept { return channel == kMailChannel ? mail_ : data_; }
  static int tag(MessageAddress address) noexcept;
  /// True if messages of the channel are sent from a copy: headers, control messages, and data of sends, which may wait
  /// long for a receiver.
  static bool is_copied(int channel) noexcept;

  void close() noexcept { closed_.store(true); }
  bool closed() const noexcept { return closed_.load(std::memory_order_relaxed); }
  void set_left(int rank) noexcept { left_[static_cast<std::size_t>(rank)].store(true); }
  bool has_left(int rank) const noexcept { return rank >= 0 && left_[static_cast<std::size_t>(rank)].load(); }
  /// True if the process of a rank on this host has ended; false for ranks on other hosts.
  bool is_dead(int rank) const noexcept;

  /// From now on drain() receives and discards pending data of collectives, so that the peers' sends complete.
  void begin_draining() noexcept { draining_.store(true); }
  /// Discards one message. False if none is pending.
  bool drain();

 private:
  void get_to_know(const std::vector<Identity>& all);

  MPI_Comm data_;                  ///< all channels except control; the tag holds the channel
  MPI_Comm mail_ = MPI_COMM_NULL;  ///< control messages, which drain() must not discard
  int rank_ = 0;
  int size_ = 1;
  bool crowded_ = false;
  std::vector<int> processes_;                 ///< by rank: pidfd, or -1 on another host
  std::unique_ptr<std::atomic<bool>[]> left_;  // NOLINT(modernize-avoid-c-arrays): atomics are not movable
  std::atomic<bool> closed_ = false;
  std::atomic<bool> draining_ = false;
};

}  // namespace hookline::mpi
