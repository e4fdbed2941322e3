// Sends and receives through mailboxes; spills unmatched messages when they fill all mailboxes of a sender.
#include "backend/local/mailboxes.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/local/futex_event.hpp"
#include "kernel/copy.hpp"

namespace hookline::local {

SendOp::SendOp(std::shared_ptr<LocalContext> context, Milliseconds timeout, Mailboxes& mailboxes, Operation&& op)
    : LocalOp(std::move(context), timeout, std::move(op)),
      mailboxes_(mailboxes),
      destination_(operation().root),
      tag_(operation().tag),
      data_(operation().inputs[0].contiguous()) {}

bool SendOp::step() { return mailboxes_.send_step(*this); }

std::string SendOp::describe() const {
  return fmt::format("send of {} to rank {}, tag {}", to_string(data_), destination_, tag_);
}

RecvOp::RecvOp(std::shared_ptr<LocalContext> context, Milliseconds timeout, Mailboxes& mailboxes, Operation&& op)
    : LocalOp(std::move(context), timeout, std::move(op)),
      mailboxes_(mailboxes),
      source_(operation().type == OpType::recv_anysource ? kAnySource : operation().root),
      tag_(operation().tag),
      output_(operation().outputs[0]),
      buffer_(output_.is_contiguous() ? output_ : Tensor::empty(output_.shape(), output_.dtype())) {}

bool RecvOp::step() { return mailboxes_.receive_step(*this); }

std::vector<int> RecvOp::awaited_ranks() const {
  if (matched_source_ >= 0 || source_ >= 0) return {matched_source_ >= 0 ? matched_source_ : source_};
  std::vector<int> all;
  for (int r = 0; r < mailboxes_.memory_.size(); ++r) {
    if (r != mailboxes_.memory_.rank()) all.push_back(r);
  }
  return all;
}

std::string RecvOp::describe() const {
  const std::string source = source_ == kAnySource ? "any rank" : fmt::format("rank {}", source_);
  return fmt::format("recv of {} from {}, tag {}", to_string(output_), source, tag_);
}

Mailboxes::Mailboxes(Memory& memory)
    : memory_(memory),
      chunk_bytes_(mailbox_chunk_bytes(memory.size())),
      send_slots_(static_cast<std::size_t>(memory.size())),
      sends_posted_(send_slots_.size()),
      last_placed_(send_slots_.size()),
      last_message_count_(send_slots_.size()),
      last_seen_(send_slots_.size()),
      chunks_announced_(send_slots_.size()),
      incoming_(send_slots_.size()) {}

void Mailboxes::post(std::shared_ptr<LocalOp> op) {
  const std::lock_guard lock(mutex_);
  if (auto* send = dynamic_cast<SendOp*>(op.get()))
    send->send_order_ = ++sends_posted_[static_cast<std::size_t>(send->destination_)];
  queue_.push_back(std::move(op));
  pending_count_.store(queue_.size(), std::memory_order_seq_cst);
}

std::vector<std::shared_ptr<LocalOp>> Mailboxes::pending() {
  const std::lock_guard lock(mutex_);
  return queue_;
}

bool Mailboxes::step() {
  bool progressed = false;
  for (const auto& op : pending()) {
    const std::uint64_t before = op->progress();
    bool done = false;
    std::exception_ptr error;
    try {
      done = op->step();
    } catch (const Mismatch&) {
      done = true;
      error = std::current_exception();
    }
    progressed = progressed || done || op->progress() != before;
    if (!done) continue;
    {
      const std::lock_guard lock(mutex_);
      std::erase(queue_, op);
      pending_count_.store(queue_.size(), std::memory_order_release);
    }
    op->complete(error);
  }
  return progressed;
}

void Mailboxes::fail_pending(const std::exception_ptr& cause) {
  std::vector<std::shared_ptr<LocalOp>> failed_ops;
  {
    const std::lock_guard lock(mutex_);
    failed_ops.swap(queue_);
    pending_count_.store(0, std::memory_order_release);
  }
  for (const auto& op : failed_ops) op->complete(cause);
}

// Returns at least 1: an empty message takes one chunk, which the receiver marks as drained.
std::uint64_t Mailboxes::chunk_count(std::uint64_t bytes) const noexcept {
  return std::max<std::uint64_t>(1, bytes / chunk_bytes_ + (bytes % chunk_bytes_ != 0 ? 1 : 0));
}

Mailbox& Mailboxes::mailbox_of(int from, int to, int index) const {
  return receiver_mailboxes(memory_.block(from), to)[static_cast<std::size_t>(index)];
}

std::byte* Mailboxes::chunk_data(int from, int to, int index, std::uint64_t count) const {
  const std::size_t at =
      (static_cast<std::size_t>(to) * kMailboxesPerPeer + static_cast<std::size_t>(index)) * 2 + count % 2;
  return memory_.block(from).mailbox_memory.data() + at * chunk_bytes_;
}

int Mailboxes::find_free_mailbox(int target) {
  for (int i = 0; i < static_cast<int>(kMailboxesPerPeer); ++i) {
    SendSlot& out = send_slots_[static_cast<std::size_t>(target)][static_cast<std::size_t>(i)];
    Mailbox& mailbox = mailbox_of(memory_.rank(), target, i);
    if (out.busy && mailbox.drained.load(std::memory_order_acquire) >= out.free_after_chunks) {
      out.busy = false;
      // A rejected message may be drained before it is filled.
      if (mailbox.filled.load(std::memory_order_relaxed) < out.free_after_chunks)
        mailbox.filled.store(out.free_after_chunks, std::memory_order_release);
    }
    if (!out.busy) return i;
  }
  return -1;
}

bool Mailboxes::send_step(SendOp& send) {
  const int me = memory_.rank();
  const std::uint64_t bytes = send.data_.nbytes();
  const std::uint64_t total = chunk_count(bytes);
  if (send.mailbox_index_ < 0) {
    std::uint64_t& placed = last_placed_[static_cast<std::size_t>(send.destination_)];
    if (send.send_order_ != placed + 1)
      return false;  // earlier sends get a mailbox first: the receiver matches in send order
    send.mailbox_index_ = find_free_mailbox(send.destination_);
    if (send.mailbox_index_ < 0) return false;
    placed = send.send_order_;
    Mailbox& mailbox = mailbox_of(me, send.destination_, send.mailbox_index_);
    send.first_chunk_ = mailbox.filled.load(std::memory_order_relaxed);
    send_slots_[static_cast<std::size_t>(send.destination_)][static_cast<std::size_t>(send.mailbox_index_)] = {
        true, send.first_chunk_ + total};
    mailbox.send_order = send.send_order_;
    mailbox.tag = send.tag_;
    mailbox.dtype = static_cast<std::uint8_t>(send.data_.dtype());
    mailbox.bytes = bytes;
    send.message_count_ = mailbox.message_count.load(std::memory_order_relaxed) + 1;
    mailbox.message_count.store(send.message_count_, std::memory_order_seq_cst);
    ++send.progress_;
  }
  Mailbox& mailbox = mailbox_of(me, send.destination_, send.mailbox_index_);
  while (send.chunks_written_ < total) {
    if (mailbox.rejected.load(std::memory_order_acquire) >= send.message_count_) {
      throw Mismatch(fmt::format("{}: the receiver expected another size or dtype", send.describe()),
                     {send.destination_});
    }
    const std::uint64_t count = send.first_chunk_ + send.chunks_written_;
    if (mailbox.drained.load(std::memory_order_acquire) + 2 <= count) break;
    const std::uint64_t at = send.chunks_written_ * chunk_bytes_;
    kernel::copy(chunk_data(me, send.destination_, send.mailbox_index_, count), send.data_.bytes() + at,
                 std::min<std::uint64_t>(chunk_bytes_, bytes - at));
    ++send.chunks_written_;
    ++send.progress_;
    mailbox.filled.store(count + 1, std::memory_order_seq_cst);
    notify(memory_.block(send.destination_));
  }
  return send.chunks_written_ == total;
}

// Adds new messages of a sender to `incoming_`, in send order. Scans until no mailbox has a new message, because
// the sender may fill a mailbox that was already scanned. A mailbox holds one message at a time; the next one follows
// after it is drained.
void Mailboxes::scan_mailboxes(int source) {
  const auto s = static_cast<std::size_t>(source);
  std::size_t unchanged_mailboxes = 0;
  for (std::size_t b = 0; unchanged_mailboxes < kMailboxesPerPeer; b = (b + 1) % kMailboxesPerPeer) {
    ++unchanged_mailboxes;
    const Mailbox& mailbox = mailbox_of(source, memory_.rank(), static_cast<int>(b));
    const std::uint64_t message = mailbox.message_count.load(std::memory_order_acquire);
    if (message == last_message_count_[s][b] || mailbox.send_order != last_seen_[s] + 1) continue;
    last_message_count_[s][b] = message;
    const Incoming& added =
        incoming_[s].emplace_back(Incoming{static_cast<int>(b), message, ++last_seen_[s], mailbox.tag, mailbox.dtype,
                                           mailbox.bytes, chunks_announced_[s][b]});
    chunks_announced_[s][b] += chunk_count(added.bytes);
    unchanged_mailboxes = 0;
  }
}

Mailboxes::Incoming* Mailboxes::find_message(int source, int tag) {
  for (Incoming& message : incoming_[static_cast<std::size_t>(source)]) {
    if (!message.matched && message.tag == tag) return &message;
  }
  return nullptr;
}

// Copies the next chunk out of the mailbox. Returns false if it has not been written.
bool Mailboxes::read_chunk(int source, Incoming& message, std::byte* to) {
  Mailbox& mailbox = mailbox_of(source, memory_.rank(), message.mailbox_index);
  const std::uint64_t count = message.first_chunk + message.chunks_read;
  if (mailbox.filled.load(std::memory_order_acquire) <= count) return false;
  const std::uint64_t at = message.chunks_read * chunk_bytes_;
  kernel::copy(to, chunk_data(source, memory_.rank(), message.mailbox_index, count),
               std::min<std::uint64_t>(chunk_bytes_, message.bytes - at));
  ++message.chunks_read;
  mailbox.drained.store(count + 1, std::memory_order_seq_cst);
  notify(memory_.block(source));
  return true;
}

// Tells the sender that its message does not match, and frees the mailbox. Does nothing for a message that was spilled
// completely: its mailbox may hold another message by now.
void Mailboxes::reject(int source, Incoming& message) {
  if (message.chunks_read == chunk_count(message.bytes)) return;
  Mailbox& mailbox = mailbox_of(source, memory_.rank(), message.mailbox_index);
  mailbox.rejected.store(message.message_count, std::memory_order_seq_cst);
  mailbox.drained.store(message.first_chunk + chunk_count(message.bytes), std::memory_order_seq_cst);
  notify(memory_.block(source));
}

// Frees a mailbox if all of a sender's mailboxes hold unmatched messages, so that the sender can send the awaited one:
// copies a chunk of the oldest message to private memory. Returns true if it copied a chunk.
bool Mailboxes::spill_oldest(int source) {
  auto& list = incoming_[static_cast<std::size_t>(source)];
  const auto in_mailbox = [&](const Incoming& m) { return m.chunks_read < chunk_count(m.bytes); };
  const auto num_unmatched =
      std::count_if(list.begin(), list.end(), [&](const Incoming& m) { return !m.matched && in_mailbox(m); });
  if (num_unmatched < static_cast<std::ptrdiff_t>(kMailboxesPerPeer)) return false;
  Incoming& oldest = *std::find_if(list.begin(), list.end(), in_mailbox);
  const std::uint64_t at = oldest.chunks_read * chunk_bytes_;
  oldest.spilled.resize(at + std::min<std::uint64_t>(chunk_bytes_, oldest.bytes - at));
  return read_chunk(source, oldest, oldest.spilled.data() + at);
}

bool Mailboxes::receive_step(RecvOp& receive) {
  const int me = memory_.rank();
  if (receive.matched_source_ < 0) {
    for (int s = 0; s < memory_.size() && receive.matched_source_ < 0; ++s) {
      if (s == me || (receive.source_ != kAnySource && s != receive.source_)) continue;
      scan_mailboxes(s);
      Incoming* const message = find_message(s, receive.tag_);
      if (!message) {
        if (spill_oldest(s)) ++receive.progress_;
        continue;
      }
      message->matched = true;
      receive.matched_source_ = s;
      receive.send_order_ = message->send_order;
      ++receive.progress_;
    }
    if (receive.matched_source_ < 0) return false;
  }
  const int source = receive.matched_source_;
  auto& list = incoming_[static_cast<std::size_t>(source)];
  const auto message =
      std::find_if(list.begin(), list.end(), [&](const Incoming& m) { return m.send_order == receive.send_order_; });
  const std::uint64_t total = chunk_count(message->bytes);
  if (message->bytes != receive.buffer_.nbytes() ||
      message->dtype != static_cast<std::uint8_t>(receive.buffer_.dtype())) {
    const auto sent =
        message->dtype <= static_cast<std::uint8_t>(DType::boolean) ? name(static_cast<DType>(message->dtype)) : "?";
    const std::string text =
        fmt::format("{}: rank {} sent {} bytes of {}", receive.describe(), source, message->bytes, sent);
    reject(source, *message);
    list.erase(message);
    throw Mismatch(text, {source});
  }
  std::byte* const to = receive.buffer_.mutable_bytes();
  if (!message->spilled.empty()) {
    std::memcpy(to, message->spilled.data(), message->spilled.size());
    message->spilled.clear();
  }
  while (message->chunks_read < total) {
    if (!read_chunk(source, *message, to + message->chunks_read * chunk_bytes_)) return false;
    ++receive.progress_;
  }
  list.erase(message);
  if (!receive.output_.is_contiguous()) receive.output_.copy_from(receive.buffer_);
  return true;
}

}  // namespace hookline::local
