// Sends and receives through mailboxes; spills unmatched messages when they fill all mailboxes of a sender.
#include "backend/embedded/mail.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/embedded/bell.hpp"
#include "kernel/copy.hpp"

namespace hookline::embedded {

Send::Send(std::shared_ptr<Engine> engine, Milliseconds timeout, Mail& mail, Collective&& what)
    : Pending(std::move(engine), timeout, std::move(what)),
      mail_(mail),
      target_(collective().root),
      tag_(collective().tag),
      data_(collective().inputs[0].contiguous()) {}

bool Send::step() { return mail_.send_step(*this); }

std::string Send::describe() const {
  return fmt::format("send of {} to rank {}, tag {}", to_string(data_), target_, tag_);
}

Receive::Receive(std::shared_ptr<Engine> engine, Milliseconds timeout, Mail& mail, Collective&& what)
    : Pending(std::move(engine), timeout, std::move(what)),
      mail_(mail),
      source_(collective().type == OpType::recv_anysource ? kAnySource : collective().root),
      tag_(collective().tag),
      target_(collective().outputs[0]),
      buffer_(target_.is_contiguous() ? target_ : Tensor::empty(target_.shape(), target_.dtype())) {}

bool Receive::step() { return mail_.receive_step(*this); }

std::vector<int> Receive::awaited() const {
  if (found_in_ >= 0 || source_ >= 0) return {found_in_ >= 0 ? found_in_ : source_};
  std::vector<int> all;
  for (int r = 0; r < mail_.memory_.size(); ++r) {
    if (r != mail_.memory_.rank()) all.push_back(r);
  }
  return all;
}

std::string Receive::describe() const {
  const std::string source = source_ == kAnySource ? "any rank" : fmt::format("rank {}", source_);
  return fmt::format("recv of {} from {}, tag {}", to_string(target_), source, tag_);
}

Mail::Mail(Memory& memory)
    : memory_(memory),
      half_bytes_(mail_half_bytes(memory.size())),
      outboxes_(static_cast<std::size_t>(memory.size())),
      sent_(outboxes_.size()),
      placed_(outboxes_.size()),
      seen_(outboxes_.size()),
      noted_(outboxes_.size()),
      chunks_before_(outboxes_.size()),
      incoming_(outboxes_.size()) {}

void Mail::post(std::shared_ptr<Pending> operation) {
  const std::lock_guard lock(mutex_);
  if (auto* send = dynamic_cast<Send*>(operation.get()))
    send->order_ = ++sent_[static_cast<std::size_t>(send->target_)];
  queue_.push_back(std::move(operation));
  count_.store(queue_.size(), std::memory_order_seq_cst);
}

std::vector<std::shared_ptr<Pending>> Mail::pending() {
  const std::lock_guard lock(mutex_);
  return queue_;
}

bool Mail::step() {
  bool moved = false;
  for (const auto& operation : pending()) {
    const std::uint64_t before = operation->moves();
    bool over = false;
    std::exception_ptr error;
    try {
      over = operation->step();
    } catch (const Mismatch&) {
      over = true;
      error = std::current_exception();
    }
    moved = moved || over || operation->moves() != before;
    if (!over) continue;
    {
      const std::lock_guard lock(mutex_);
      std::erase(queue_, operation);
      count_.store(queue_.size(), std::memory_order_release);
    }
    operation->complete(error);
  }
  return moved;
}

void Mail::end_all(const std::exception_ptr& cause) {
  std::vector<std::shared_ptr<Pending>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(queue_);
    count_.store(0, std::memory_order_release);
  }
  for (const auto& operation : ended) operation->complete(cause);
}

// An empty message still takes a chunk, so that its receipt can be seen.
std::uint64_t Mail::chunks(std::uint64_t bytes) const noexcept {
  return std::max<std::uint64_t>(1, bytes / half_bytes_ + (bytes % half_bytes_ != 0 ? 1 : 0));
}

Mailbox& Mail::box(int from, int to, int index) const {
  return mailboxes(memory_.block(from), to)[static_cast<std::size_t>(index)];
}

std::byte* Mail::chunk(int from, int to, int index, std::uint64_t count) const {
  const std::size_t at = (static_cast<std::size_t>(to) * kMailboxes + static_cast<std::size_t>(index)) * 2 + count % 2;
  return memory_.block(from).mail_bytes.data() + at * half_bytes_;
}

int Mail::free_box(int target) {
  for (int i = 0; i < static_cast<int>(kMailboxes); ++i) {
    Outbox& out = outboxes_[static_cast<std::size_t>(target)][static_cast<std::size_t>(i)];
    Mailbox& mailbox = box(memory_.rank(), target, i);
    if (out.busy && mailbox.drained.load(std::memory_order_acquire) >= out.free_at) {
      out.busy = false;
      // A refused message may have been drained before it was filled.
      if (mailbox.filled.load(std::memory_order_relaxed) < out.free_at)
        mailbox.filled.store(out.free_at, std::memory_order_release);
    }
    if (!out.busy) return i;
  }
  return -1;
}

bool Mail::send_step(Send& send) {
  const int me = memory_.rank();
  const std::uint64_t bytes = send.data_.nbytes();
  const std::uint64_t total = chunks(bytes);
  if (send.box_ < 0) {
    std::uint64_t& placed = placed_[static_cast<std::size_t>(send.target_)];
    if (send.order_ != placed + 1)
      return false;  // those before it go first, or the receiver would see them out of order
    send.box_ = free_box(send.target_);
    if (send.box_ < 0) return false;
    placed = send.order_;
    Mailbox& mailbox = box(me, send.target_, send.box_);
    send.first_ = mailbox.filled.load(std::memory_order_relaxed);
    outboxes_[static_cast<std::size_t>(send.target_)][static_cast<std::size_t>(send.box_)] = {true,
                                                                                              send.first_ + total};
    mailbox.order = send.order_;
    mailbox.tag = send.tag_;
    mailbox.dtype = static_cast<std::uint8_t>(send.data_.dtype());
    mailbox.bytes = bytes;
    send.message_ = mailbox.message.load(std::memory_order_relaxed) + 1;
    mailbox.message.store(send.message_, std::memory_order_seq_cst);
    ++send.moves_;
  }
  Mailbox& mailbox = box(me, send.target_, send.box_);
  while (send.filled_ < total) {
    if (mailbox.refused.load(std::memory_order_acquire) >= send.message_) {
      throw Mismatch(fmt::format("{}: the receiver expected another size or dtype", send.describe()), {send.target_});
    }
    const std::uint64_t count = send.first_ + send.filled_;
    if (mailbox.drained.load(std::memory_order_acquire) + 2 <= count) break;
    const std::uint64_t at = send.filled_ * half_bytes_;
    kernel::copy(chunk(me, send.target_, send.box_, count), send.data_.bytes() + at,
                 std::min<std::uint64_t>(half_bytes_, bytes - at));
    ++send.filled_;
    ++send.moves_;
    mailbox.filled.store(count + 1, std::memory_order_seq_cst);
    ring(memory_.block(send.target_));
  }
  return send.filled_ == total;
}

// Takes note of messages that have come into this rank's mailboxes at a sender, in the order in which they were sent:
// while one mailbox is looked into, the sender may fill those that were looked into before. A mailbox holds one message
// at a time, and the next one comes only after the one before was drained.
void Mail::look_into(int source) {
  const auto s = static_cast<std::size_t>(source);
  std::size_t in_vain = 0;
  for (std::size_t b = 0; in_vain < kMailboxes; b = (b + 1) % kMailboxes) {
    ++in_vain;
    const Mailbox& mailbox = box(source, memory_.rank(), static_cast<int>(b));
    const std::uint64_t message = mailbox.message.load(std::memory_order_acquire);
    if (message == seen_[s][b] || mailbox.order != noted_[s] + 1) continue;
    seen_[s][b] = message;
    const Incoming& noted = incoming_[s].emplace_back(Incoming{static_cast<int>(b), message, ++noted_[s], mailbox.tag,
                                                               mailbox.dtype, mailbox.bytes, chunks_before_[s][b]});
    chunks_before_[s][b] += chunks(noted.bytes);
    in_vain = 0;
  }
}

Mail::Incoming* Mail::find(int source, int tag) {
  for (Incoming& message : incoming_[static_cast<std::size_t>(source)]) {
    if (!message.claimed && message.tag == tag) return &message;
  }
  return nullptr;
}

// Copies the next chunk out of the mailbox, if it is there.
bool Mail::take_chunk(int source, Incoming& message, std::byte* to) {
  Mailbox& mailbox = box(source, memory_.rank(), message.box);
  const std::uint64_t count = message.first + message.taken;
  if (mailbox.filled.load(std::memory_order_acquire) <= count) return false;
  const std::uint64_t at = message.taken * half_bytes_;
  kernel::copy(to, chunk(source, memory_.rank(), message.box, count),
               std::min<std::uint64_t>(half_bytes_, message.bytes - at));
  ++message.taken;
  mailbox.drained.store(count + 1, std::memory_order_seq_cst);
  ring(memory_.block(source));
  return true;
}

// One that was put aside has left its mailbox, which may carry another one by now.
void Mail::refuse(int source, Incoming& message) {
  if (message.taken == chunks(message.bytes)) return;
  Mailbox& mailbox = box(source, memory_.rank(), message.box);
  mailbox.refused.store(message.message, std::memory_order_seq_cst);
  mailbox.drained.store(message.first + chunks(message.bytes), std::memory_order_seq_cst);
  ring(memory_.block(source));
}

// All mailboxes of a sender hold messages that nobody waits for, and somebody waits for one that has not come: the
// oldest is taken out and kept here, so that the sender can go on. True where some of it was.
bool Mail::make_room(int source) {
  auto& list = incoming_[static_cast<std::size_t>(source)];
  const auto lies_in_box = [&](const Incoming& m) { return m.taken < chunks(m.bytes); };
  const auto stuck =
      std::count_if(list.begin(), list.end(), [&](const Incoming& m) { return !m.claimed && lies_in_box(m); });
  if (stuck < static_cast<std::ptrdiff_t>(kMailboxes)) return false;
  Incoming& oldest = *std::find_if(list.begin(), list.end(), lies_in_box);
  const std::uint64_t at = oldest.taken * half_bytes_;
  oldest.kept.resize(at + std::min<std::uint64_t>(half_bytes_, oldest.bytes - at));
  return take_chunk(source, oldest, oldest.kept.data() + at);
}

bool Mail::receive_step(Receive& receive) {
  const int me = memory_.rank();
  if (receive.found_in_ < 0) {
    for (int s = 0; s < memory_.size() && receive.found_in_ < 0; ++s) {
      if (s == me || (receive.source_ != kAnySource && s != receive.source_)) continue;
      look_into(s);
      Incoming* const message = find(s, receive.tag_);
      if (!message) {
        if (make_room(s)) ++receive.moves_;
        continue;
      }
      message->claimed = true;
      receive.found_in_ = s;
      receive.order_ = message->order;
      ++receive.moves_;
    }
    if (receive.found_in_ < 0) return false;
  }
  const int source = receive.found_in_;
  auto& list = incoming_[static_cast<std::size_t>(source)];
  const auto message =
      std::find_if(list.begin(), list.end(), [&](const Incoming& m) { return m.order == receive.order_; });
  const std::uint64_t total = chunks(message->bytes);
  if (message->bytes != receive.buffer_.nbytes() ||
      message->dtype != static_cast<std::uint8_t>(receive.buffer_.dtype())) {
    const auto sent =
        message->dtype <= static_cast<std::uint8_t>(DType::boolean) ? name(static_cast<DType>(message->dtype)) : "?";
    const std::string text =
        fmt::format("{}: rank {} sent {} bytes of {}", receive.describe(), source, message->bytes, sent);
    refuse(source, *message);
    list.erase(message);
    throw Mismatch(text, {source});
  }
  std::byte* const to = receive.buffer_.mutable_bytes();
  if (!message->kept.empty()) {
    std::memcpy(to, message->kept.data(), message->kept.size());
    message->kept.clear();
  }
  while (message->taken < total) {
    if (!take_chunk(source, *message, to + message->taken * half_bytes_)) return false;
    ++receive.moves_;
  }
  list.erase(message);
  if (!receive.target_.is_contiguous()) receive.target_.copy_from(receive.buffer_);
  return true;
}

}  // namespace hookline::embedded
