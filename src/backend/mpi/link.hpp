// What the messages of one group have in common: its communicators, and what is known of its ranks.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::mpi {

/// The communicators of a group are its own, duplicated, and never freed: a late message of a group that failed would
/// otherwise be taken for one of the next group that gets the same number from MPI.
class Link {
 public:
  /// Collective over `base`, whose ranks are the group's. Throws ResourceError.
  explicit Link(MPI_Comm base);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Whether more ranks run on this host than it has cores for.
  bool crowded() const noexcept { return crowded_; }

  MPI_Comm base() const noexcept { return base_; }
  MPI_Comm comm(int channel) const noexcept { return comms_[comm_index(channel)]; }
  static int tag(MessageAddress address) noexcept;
  /// Whether the messages of a channel are small and need no memory of the caller's: headers and mail.
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
  static std::size_t comm_index(int channel) noexcept {
    return static_cast<std::size_t>(channel < 2 ? channel : channel / 2 + 1);
  }
  void meet();

  MPI_Comm base_;
  int rank_ = 0;
  int size_ = 1;
  bool crowded_ = false;
  std::vector<MPI_Comm> comms_;                ///< of mail, of large messages between two ranks, and of each lane
  std::vector<int> processes_;                 ///< pidfds of the ranks on this host, else -1
  std::unique_ptr<std::atomic<bool>[]> left_;  // NOLINT(modernize-avoid-c-arrays): atomics do not move
  std::atomic<bool> closed_ = false;
  std::atomic<bool> draining_ = false;
};

}  // namespace hookline::mpi
