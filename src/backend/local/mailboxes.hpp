// Sends and receives through mailboxes, matched by source and tag in send order.
#pragma once

#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/local/local_op.hpp"
#include "backend/local/memory.hpp"

namespace hookline::local {

/// A send. It waits for a free mailbox, then writes its message chunk by chunk.
class SendOp final : public LocalOp {
 public:
  SendOp(std::shared_ptr<LocalContext> context, Milliseconds timeout, class Mailboxes& mailboxes,
         Operation&& operation);
  bool step() override;
  std::uint64_t progress() const override { return progress_; }
  std::vector<int> awaited_ranks() const override { return {destination_}; }
  std::string describe() const override;

 private:
  friend class Mailboxes;
  Mailboxes& mailboxes_;
  const int destination_;
  const int tag_;
  const Tensor data_;
  std::uint64_t send_order_ = 0;
  int mailbox_index_ = -1;
  std::uint64_t message_count_ = 0;
  std::uint64_t first_chunk_ = 0;  ///< chunks that the mailbox carried before this message
  std::uint64_t chunks_written_ = 0;
  std::uint64_t progress_ = 0;
};

/// A receive. It waits for a matching message, then reads it chunk by chunk.
class RecvOp final : public LocalOp {
 public:
  RecvOp(std::shared_ptr<LocalContext> context, Milliseconds timeout, class Mailboxes& mailboxes,
         Operation&& operation);
  bool step() override;
  std::uint64_t progress() const override { return progress_; }
  std::vector<int> awaited_ranks() const override;
  bool awaits_any() const override { return matched_source_ < 0 && source_ < 0; }
  std::string describe() const override;
  int source_rank() const override { return done() ? matched_source_ : -1; }

 private:
  friend class Mailboxes;
  Mailboxes& mailboxes_;
  const int source_;  ///< or kAnySource
  const int tag_;
  const Tensor output_;
  const Tensor buffer_;  ///< the output itself if it is contiguous
  int matched_source_ = -1;
  std::uint64_t send_order_ = 0;
  std::uint64_t progress_ = 0;
};

/// Sends and receives of this rank. All methods except post() and empty() require the driver lock of the mailboxes.
class Mailboxes {
 public:
  explicit Mailboxes(Memory& memory);

  /// Queues an operation. Thread-safe.
  void post(std::shared_ptr<LocalOp> op);
  /// Steps every pending operation, and completes those that are done or throw Mismatch. Rethrows other errors. Returns
  /// true if any operation made progress.
  bool step();
  /// Completes all pending operations with an error.
  void fail_pending(const std::exception_ptr& cause);
  std::vector<std::shared_ptr<LocalOp>> pending();
  bool empty() const noexcept { return pending_count_.load(std::memory_order_acquire) == 0; }

 private:
  friend class SendOp;
  friend class RecvOp;

  /// A message in a mailbox for this rank, complete or partial.
  struct Incoming {
    int mailbox_index;
    std::uint64_t message_count;
    std::uint64_t send_order;
    std::int32_t tag;
    std::uint8_t dtype;
    std::uint64_t bytes;
    std::uint64_t first_chunk;            ///< chunks that the mailbox carried before this message
    std::uint64_t chunks_read = 0;        ///< chunks read so far
    bool matched = false;                 ///< a receive has matched it
    std::vector<std::byte> spilled = {};  ///< chunks read without a matching receive, to free the mailbox
  };
  struct SendSlot {
    bool busy = false;
    std::uint64_t free_after_chunks = 0;  ///< total drained chunks at which the mailbox becomes free
  };

  std::uint64_t chunk_count(std::uint64_t bytes) const noexcept;
  Mailbox& mailbox_of(int from, int to, int index) const;
  std::byte* chunk_data(int from, int to, int index, std::uint64_t count) const;

  bool send_step(SendOp& send);
  bool receive_step(RecvOp& receive);
  void scan_mailboxes(int source);
  Incoming* find_message(int source, int tag);
  bool read_chunk(int source, Incoming& message, std::byte* to);
  void reject(int source, Incoming& message);
  bool spill_oldest(int source);
  int find_free_mailbox(int target);

  Memory& memory_;
  const std::size_t chunk_bytes_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<LocalOp>> queue_;
  std::atomic<std::size_t> pending_count_ = 0;                       ///< size of the queue
  std::vector<std::array<SendSlot, kMailboxesPerPeer>> send_slots_;  ///< by receiver
  std::vector<std::uint64_t> sends_posted_;                          ///< by receiver: sends posted so far
  std::vector<std::uint64_t> last_placed_;  ///< by receiver: order of the last send that got a mailbox
  std::vector<std::array<std::uint64_t, kMailboxesPerPeer>> last_message_count_;  ///< by sender and mailbox, as scanned
  std::vector<std::uint64_t> last_seen_;  ///< by sender: order of the newest scanned message
  std::vector<std::array<std::uint64_t, kMailboxesPerPeer>>
      chunks_announced_;                       ///< by sender and mailbox: chunks of all scanned messages
  std::vector<std::list<Incoming>> incoming_;  ///< by sender, in send order
};

}  // namespace hookline::local
