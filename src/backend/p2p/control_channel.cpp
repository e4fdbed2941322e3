// The listener thread, and the matching of receives with arrived messages.
#include "backend/p2p/control_channel.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/p2p/p2p_context.hpp"
#include "backend/p2p/p2p_ops.hpp"

namespace hookline::p2p {
namespace {

constexpr Milliseconds kGoodbyeTime{1000};  // from a failure of the group to the closing of its connections

}  // namespace

ControlChannel::ControlChannel(P2PContext& context)
    : context_(context),
      data_lane_(context),
      next_data_sequence_(static_cast<std::size_t>(context.size())),
      failure_detector_(context.size()),
      messages_received_(static_cast<std::size_t>(context.size())) {}

WorkPtr ControlChannel::send(Operation&& operation, Milliseconds timeout) {
  auto op = std::make_shared<SendOp>(context_.shared_from_this(), timeout, std::move(operation));
  Envelope envelope{.tag = op->operation().tag,
                    .dtype = static_cast<std::uint32_t>(op->data().dtype()),
                    .bytes = op->data().nbytes()};
  if (envelope.bytes <= kMaxControlPayload) {
    envelope.inline_bytes = static_cast<std::uint32_t>(envelope.bytes);
    context_.control_sender().send(op->target(), envelope, op->data().bytes(), op->deadline());
    op->complete(nullptr);
    return op;
  }
  std::exception_ptr disconnect;
  {
    const std::lock_guard lock(mutex_);
    if (complete_if_unusable(*op)) return op;
    std::uint64_t& sequence = next_data_sequence_[static_cast<std::size_t>(op->target())];
    try {
      op->post(sequence);
    } catch (const PeerLost&) {
      disconnect = std::current_exception();
    }
    envelope.data_sequence = sequence;
    sequence += (envelope.bytes + kDataChunkBytes - 1) / kDataChunkBytes;
    unacked_sends_.push_back(op);
    if (!disconnect) context_.control_sender().send(op->target(), envelope, nullptr);
  }
  if (disconnect)
    context_.fail(context_.diagnose_disconnect(disconnect, op->target(), op->describe(), [](int) { return false; }));
  start_spinning();
  context_.watchdog().keep_running();
  return op;
}

WorkPtr ControlChannel::receive(Operation&& operation, Milliseconds timeout) {
  auto op = std::make_shared<RecvOp>(context_.shared_from_this(), timeout, std::move(operation));
  std::list<UnexpectedMessage> matched;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(unexpected_.begin(), unexpected_.end(),
                                 [&](const UnexpectedMessage& m) { return op->matches(m.source, m.envelope.tag); });
    if (it != unexpected_.end()) {
      matched.splice(matched.end(), unexpected_, it);
    } else if (complete_if_unusable(*op)) {
      return op;
    } else {
      posted_receives_.push_back(op);
    }
  }
  if (!matched.empty()) {
    deliver(op, matched.front());
  } else {
    start_spinning();
    context_.watchdog().keep_running();
    check_peers();
  }
  return op;
}

bool ControlChannel::complete_if_unusable(TransportOp& op) {
  if (!context_.unusable()) return false;
  op.complete(context_.unusable_error());
  return true;
}

// Called by the listener thread, or by the thread that starts the receive before any other thread can access it.
void ControlChannel::deliver(const std::shared_ptr<RecvOp>& op, const UnexpectedMessage& message) {
  if (message.envelope.inline_bytes == message.envelope.bytes) {
    std::exception_ptr error;
    try {
      op->deliver(message.source, message.envelope, message.data.data());
    } catch (const Mismatch&) {
      error = std::current_exception();
    }
    finish(*op, error);
    return;
  }
  if (!data_lane_.push(op, [&] { op->begin_data(message.source, message.envelope); }, true)) {
    finish(*op, context_.unusable_error());
    return;
  }
  const std::lock_guard lock(mutex_);
  changed_.notify_all();  // waiters may drive the receive now
}

void ControlChannel::finish(TransportOp& op, std::exception_ptr error) {
  op.complete(std::move(error));
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void ControlChannel::handle(int source, const Envelope& envelope, const std::byte* data) {
  switch (envelope.type) {
    case ControlType::send: {
      UnexpectedMessage message{source, envelope, {data, data + envelope.inline_bytes}};
      std::shared_ptr<RecvOp> op;
      {
        const std::lock_guard lock(mutex_);
        const auto it = std::find_if(posted_receives_.begin(), posted_receives_.end(),
                                     [&](const auto& r) { return r->matches(source, envelope.tag); });
        if (it == posted_receives_.end()) {
          unexpected_.push_back(std::move(message));
          return;
        }
        op = *it;
        posted_receives_.erase(it);
      }
      deliver(op, message);
      return;
    }
    case ControlType::ack: {
      std::shared_ptr<SendOp> op;
      {
        const std::lock_guard lock(mutex_);
        const auto it = std::find_if(unacked_sends_.begin(), unacked_sends_.end(), [&](const auto& s) {
          return s->target() == source && s->data_sequence() == envelope.data_sequence;
        });
        if (it == unacked_sends_.end()) return;
        op = *it;
        unacked_sends_.erase(it);
      }
      op->release_requests();
      finish(*op, nullptr);
      return;
    }
    case ControlType::goodbye: context_.on_peer_goodbye(source); return;
    case ControlType::abort: {
      const AbortCause cause = decode_cause(envelope, data);
      context_.watchdog().mark_departed(source);
      context_.fail(envelope.dtype == kPeerLost ? std::make_exception_ptr(PeerLost(cause.text, cause.ranks))
                                                : std::make_exception_ptr(Aborted(cause.text, cause.ranks)),
                    &cause.text);
      return;
    }
  }
  context_.fail(std::make_exception_ptr(Mismatch(
      fmt::format("received a control message of unknown type {} from rank {}: it runs another version of Hookline. "
                  "Install the same version on all ranks.",
                  static_cast<std::uint32_t>(envelope.type), source),
      {source})));
}

void ControlChannel::run_listener() {
  std::vector<std::byte> receive_buffer(kMaxControlBytes);
  std::vector<std::byte> message_buffer(kMaxControlBytes);
  std::unique_ptr<Request> request;
  for (;;) {
    ++poll_epoch_;
    if (poll_requested_.exchange(false)) context_.wake_diagnosis();
    bool completed = false;
    try {
      if (!request)
        request = context_.transport().receive_any(kControlTag, receive_buffer.data(), receive_buffer.size());
      {
        const std::lock_guard lock(listener_mutex_);
        if (stopping_) break;
        listener_request_ = request.get();
      }
      completed = request->wait(wait_policy_.load());
    } catch (const PeerLost&) {
      // A peer disconnected during the receive. The other peers may still send.
      const std::lock_guard lock(listener_mutex_);
      listener_request_ = nullptr;  // the request is destroyed below
      if (stopping_ || context_.transport_closed()) break;
      request.reset();
      continue;
    }
    {
      const std::lock_guard lock(listener_mutex_);
      listener_request_ = nullptr;
    }
    if (!completed) continue;
    const int source = request->source();
    receive_buffer.swap(message_buffer);
    request.reset();
    Envelope envelope;
    std::memcpy(&envelope, message_buffer.data(), sizeof envelope);
    const bool valid_send = envelope.inline_bytes <= kMaxControlPayload && envelope.inline_bytes <= envelope.bytes;
    const bool valid_control = envelope.type != ControlType::send && envelope.inline_bytes <= kMaxControlPayload;
    if (source < 0 || source >= context_.size() || !(valid_send || valid_control)) continue;
    ++messages_received_[static_cast<std::size_t>(source)];
    handle(source, envelope, message_buffer.data() + sizeof envelope);
  }
}

void ControlChannel::stop_listener() noexcept {
  const std::lock_guard lock(listener_mutex_);
  stopping_ = true;
  if (listener_request_) listener_request_->interrupt();
}

void ControlChannel::poke_listener() noexcept {
  poll_requested_ = true;
  const std::lock_guard lock(listener_mutex_);
  if (listener_request_) listener_request_->interrupt();
}

void ControlChannel::start_spinning() {
  if (wait_policy_.exchange(WaitPolicy::spin) == WaitPolicy::spin) return;
  const std::lock_guard lock(listener_mutex_);
  if (listener_request_) listener_request_->interrupt();
}

void ControlChannel::fail_pending() {
  std::list<std::shared_ptr<RecvOp>> pending_receives;
  std::list<std::shared_ptr<SendOp>> pending_sends;
  {
    const std::lock_guard lock(mutex_);
    pending_receives.swap(posted_receives_);
    pending_sends.swap(unacked_sends_);
    unexpected_.clear();
  }
  const std::exception_ptr cause = context_.unusable_error();
  for (const auto& op : pending_receives) finish(*op, cause);
  for (const auto& op : pending_sends) {
    op->release_requests();
    finish(*op, cause);
  }
  data_lane_.fail_pending();
}

void ControlChannel::check_peers() {
  std::exception_ptr cause;
  {
    const std::lock_guard lock(mutex_);
    if (posted_receives_.empty() && unacked_sends_.empty()) wait_policy_ = WaitPolicy::block;
    else context_.watchdog().keep_running();
    const Clock::time_point now = Clock::now();
    for (const auto& op : posted_receives_) {
      if (cause) break;
      std::vector<int> senders;
      for (int r = 0; r < context_.size(); ++r) {
        if (r != context_.rank() && op->matches(r, op->operation().tag)) senders.push_back(r);
      }
      cause = failure_of(*op, senders, now);
    }
    for (const auto& op : unacked_sends_) {
      if (cause) break;
      cause = failure_of(*op, {op->target()}, now);
    }
  }
  if (cause) context_.fail(cause);
  context_.close_after_abort(kGoodbyeTime);
}

// Returns the error of an operation whose peers have left, one of whose peers is dead, or whose deadline has passed;
// otherwise null. One dead peer fails a receive from any source, as in the local backends: it may have been the sender.
std::exception_ptr ControlChannel::failure_of(const TransportOp& op, const std::vector<int>& peers,
                                              Clock::time_point now) {
  std::vector<int> present;
  std::copy_if(peers.begin(), peers.end(), std::back_inserter(present),
               [&](int r) { return !context_.has_departed(r); });
  if (present.empty()) {
    return std::make_exception_ptr(PeerLost(
        fmt::format("{}: rank {} left the group", context_.error_prefix(op.describe()), fmt::join(peers, ", ")),
        peers));
  }
  for (const int rank : present) {
    if (std::exception_ptr death = dead_peer_error(op, rank, now)) return death;
  }
  return now >= op.deadline() ? context_.timeout_error(op, peers) : nullptr;
}

std::exception_ptr ControlChannel::dead_peer_error(const TransportOp& op, int rank, Clock::time_point now) {
  FailureDetector::Observation observation{
      .disconnected = false,
      .messages_received = messages_received_[static_cast<std::size_t>(rank)].load(),
      .poll_epoch = poll_epoch()};
  std::exception_ptr disconnect;
  try {
    context_.transport().throw_if_disconnected(rank);
  } catch (const PeerLost&) {
    observation.disconnected = true;
    disconnect = std::current_exception();
  }
  switch (failure_detector_.update(rank, observation, now)) {
    case FailureDetector::PeerState::dead: return context_.peer_died_error(op.describe(), rank, disconnect);
    case FailureDetector::PeerState::newly_suspect: poke_listener(); return nullptr;
    default: return nullptr;
  }
}

void ControlChannel::wait_until(const std::function<bool()>& done, const TransportOp& op) {
  std::unique_lock lock(mutex_);
  while (!done()) {
    const Clock::time_point now = Clock::now();
    changed_.wait_until(lock, std::clamp(op.deadline(), now + Milliseconds(1), now + kInterruptPeriod));
    if (done()) return;
    lock.unlock();
    if (Clock::now() >= op.deadline()) check_peers();
    check_interrupt();
    lock.lock();
  }
}

}  // namespace hookline::p2p
