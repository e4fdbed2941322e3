// Sends and receives through mailboxes, matched by source and tag in send order.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/embedded/memory.hpp"
#include "backend/embedded/pending.hpp"

namespace hookline::embedded {

/// A send that waits for a mailbox, or whose message is being put into one chunk by chunk.
class Send final : public Pending {
 public:
  Send(std::shared_ptr<Engine> engine, Milliseconds timeout, class Mail& mail, Collective&& what);
  bool step() override;
  std::uint64_t moves() const override { return moves_; }
  std::vector<int> awaited() const override { return {target_}; }
  std::string describe() const override;

 private:
  friend class Mail;
  Mail& mail_;
  const int target_;
  const int tag_;
  const Tensor data_;
  std::uint64_t order_ = 0;
  int box_ = -1;
  std::uint64_t message_ = 0;
  std::uint64_t first_ = 0;  ///< chunks that the mailbox had carried before
  std::uint64_t filled_ = 0;
  std::uint64_t moves_ = 0;
};

/// A receive that waits for its message, or is taking it out of the mailbox.
class Receive final : public Pending {
 public:
  Receive(std::shared_ptr<Engine> engine, Milliseconds timeout, class Mail& mail, Collective&& what);
  bool step() override;
  std::uint64_t moves() const override { return moves_; }
  std::vector<int> awaited() const override;
  bool awaits_any() const override { return found_in_ < 0 && source_ < 0; }
  std::string describe() const override;
  int source_rank() const override { return over() ? found_in_ : -1; }

 private:
  friend class Mail;
  Mail& mail_;
  const int source_;  ///< or kAnySource
  const int tag_;
  const Tensor target_;
  const Tensor buffer_;  ///< the target itself where it is contiguous
  int found_in_ = -1;
  std::uint64_t order_ = 0;
  std::uint64_t moves_ = 0;
};

/// Both ends of this rank's mail. All of it is used under one claim, except post().
class Mail {
 public:
  explicit Mail(Memory& memory);

  /// Queues an operation; from any thread.
  void post(std::shared_ptr<Pending> operation);
  /// Gives every pending operation a step. Completed ones are completed and let go of; what a step throws, too, but for
  /// Mismatch, is thrown on. True where something moved.
  bool step();
  /// Ends everything that is pending.
  void end_all(const std::exception_ptr& cause);
  std::vector<std::shared_ptr<Pending>> pending();
  bool empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }

 private:
  friend class Send;
  friend class Receive;

  /// A message that lies in a mailbox for this rank, whole or in part.
  struct Incoming {
    int box;
    std::uint64_t message;
    std::uint64_t order;
    std::int32_t tag;
    std::uint8_t dtype;
    std::uint64_t bytes;
    std::uint64_t first;               ///< chunks that the mailbox had carried before
    std::uint64_t taken = 0;           ///< chunks of this message that were taken out
    bool claimed = false;              ///< by a receive
    std::vector<std::byte> kept = {};  ///< what was taken out with no receive to take it, to make room
  };
  struct Outbox {
    bool busy = false;
    std::uint64_t free_at = 0;  ///< once the receiver has drained so many chunks
  };

  std::uint64_t chunks(std::uint64_t bytes) const noexcept;
  Mailbox& box(int from, int to, int index) const;
  std::byte* chunk(int from, int to, int index, std::uint64_t count) const;

  bool send_step(Send& send);
  bool receive_step(Receive& receive);
  void look_into(int source);
  Incoming* find(int source, int tag);
  bool take_chunk(int source, Incoming& message, std::byte* to);
  void refuse(int source, Incoming& message);
  bool make_room(int source);
  int free_box(int target);

  Memory& memory_;
  const std::size_t half_bytes_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Pending>> queue_;
  std::atomic<std::size_t> count_ = 0;                                ///< of the queue
  std::vector<std::array<Outbox, kMailboxes>> outboxes_;              ///< by receiver
  std::vector<std::uint64_t> sent_;                                   ///< by receiver: sends so far
  std::vector<std::uint64_t> placed_;                                 ///< by receiver: the last one that has a mailbox
  std::vector<std::array<std::uint64_t, kMailboxes>> seen_;           ///< by sender: messages taken note of
  std::vector<std::uint64_t> noted_;                                  ///< by sender: the order of the newest of those
  std::vector<std::array<std::uint64_t, kMailboxes>> chunks_before_;  ///< by sender: chunks of those before the newest
  std::vector<std::list<Incoming>> incoming_;                         ///< by sender, in order
};

}  // namespace hookline::embedded
