// What the messages of one group have in common: its communicators, and what is known of its ranks.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <vector>

#include <hookline/backend/engine.hpp>

#include "backend/mpi/introduce.hpp"

namespace hookline::mpi {

/// The communicators of a group are its own, and never freed: a late message of a group that failed would otherwise be
/// taken for one of the next group that gets the same number from MPI. There are two, as few as can be: making one
/// takes all ranks several turns, for which they wait long where they share their cores with others.
class Link {
 public:
  /// Takes a communicator that nobody else uses, whose ranks are the group's; collective over it. Throws ResourceError.
  explicit Link(MPI_Comm own);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Whether more ranks run on this host than it has cores for.
  bool crowded() const noexcept { return crowded_; }

  /// To make other communicators of: MPI may use tags of it for that, from 1 up, which here are nobody's.
  MPI_Comm parent() const noexcept { return size_ == 1 ? data_ : mail_; }
  MPI_Comm comm(int channel) const noexcept { return channel == kMailChannel ? mail_ : data_; }
  static int tag(MessageAddress address) noexcept;
  /// Whether the messages of a channel are sent from copies: headers, mail, and the data of sends, which may wait long
  /// for a receiver.
  static bool is_copied(int channel) noexcept;

  void close() noexcept { closed_.store(true); }
  bool closed() const noexcept { return closed_.load(std::memory_order_relaxed); }
  void set_left(int rank) noexcept { left_[static_cast<std::size_t>(rank)].store(true); }
  bool has_left(int rank) const noexcept { return rank >= 0 && left_[static_cast<std::size_t>(rank)].load(); }
  /// Whether the process of a rank on this host has ended; false for ranks elsewhere.
  bool is_dead(int rank) const noexcept;

  /// Has what peers sent of the collectives' data received and thrown away from now on: they wait for it.
  void begin_draining() noexcept { draining_.store(true); }
  /// One round of it; false where there is nothing now.
  bool drain();

 private:
  void get_to_know(const std::vector<Identity>& all);

  MPI_Comm data_;                  ///< all channels but that of mail, told apart by tags
  MPI_Comm mail_ = MPI_COMM_NULL;  ///< apart, as all of the others' messages are thrown away when they are drained
  int rank_ = 0;
  int size_ = 1;
  bool crowded_ = false;
  std::vector<int> processes_;                 ///< pidfds of the ranks on this host, else -1
  std::unique_ptr<std::atomic<bool>[]> left_;  // NOLINT(modernize-avoid-c-arrays): atomics do not move
  std::atomic<bool> closed_ = false;
  std::atomic<bool> draining_ = false;
};

}  // namespace hookline::mpi
