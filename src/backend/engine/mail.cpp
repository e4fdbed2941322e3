// The listener thread, and the matching of receives with arrived messages.
#include "backend/engine/mail.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/engine/letters.hpp"
#include "backend/engine/station.hpp"

namespace hookline::engine {
namespace {

constexpr Milliseconds kLastWords{1000};  // from a failure of the group to the closing of its connections

}  // namespace

Mail::Mail(Station& station)
    : station_(station),
      incoming_(station),
      data_numbers_(static_cast<std::size_t>(station.size())),
      doubts_(station.size()),
      heard_(static_cast<std::size_t>(station.size())) {}

WorkPtr Mail::send(Collective&& collective, Milliseconds timeout) {
  auto send = std::make_shared<SendOperation>(station_.shared_from_this(), timeout, std::move(collective));
  Envelope envelope{.tag = send->collective().tag,
                    .dtype = static_cast<std::uint32_t>(send->data().dtype()),
                    .bytes = send->data().nbytes()};
  if (envelope.bytes <= kLongestMail) {
    envelope.inlined = static_cast<std::uint32_t>(envelope.bytes);
    station_.outbox().tell(send->target(), envelope, send->data().bytes(), send->deadline());
    send->complete(nullptr);
    return send;
  }
  std::exception_ptr lost;
  {
    const std::lock_guard lock(mutex_);
    if (over_if_unusable(*send)) return send;
    std::uint64_t& number = data_numbers_[static_cast<std::size_t>(send->target())];
    try {
      send->post(number);
    } catch (const PeerLost&) {
      lost = std::current_exception();
    }
    envelope.number = number;
    number += (envelope.bytes + kDataBytes - 1) / kDataBytes;
    sends_.push_back(send);
    if (!lost) station_.outbox().tell(send->target(), envelope, nullptr);
  }
  if (lost) station_.fail(station_.explain(lost, send->target(), send->describe(), [](int) { return false; }));
  set_urgent();
  station_.waits().keep_ticking();
  return send;
}

WorkPtr Mail::receive(Collective&& collective, Milliseconds timeout) {
  auto receive = std::make_shared<ReceiveOperation>(station_.shared_from_this(), timeout, std::move(collective));
  std::list<Letter> found;
  {
    const std::lock_guard lock(mutex_);
    const auto it = std::find_if(letters_.begin(), letters_.end(),
                                 [&](const Letter& l) { return receive->wants(l.source, l.envelope.tag); });
    if (it != letters_.end()) {
      found.splice(found.end(), letters_, it);
    } else if (over_if_unusable(*receive)) {
      return receive;
    } else {
      receives_.push_back(receive);
    }
  }
  if (!found.empty()) {
    take(receive, found.front());
  } else {
    set_urgent();
    station_.waits().keep_ticking();
    look_around();
  }
  return receive;
}

bool Mail::over_if_unusable(Operation& operation) {
  if (!station_.unusable()) return false;
  operation.complete(station_.why_unusable());
  return true;
}

// Called by the listener thread, or by the thread that starts the receive, which no other thread knows yet.
void Mail::take(const std::shared_ptr<ReceiveOperation>& receive, const Letter& letter) {
  if (letter.envelope.inlined == letter.envelope.bytes) {
    std::exception_ptr error;
    try {
      receive->take(letter.source, letter.envelope, letter.data.data());
    } catch (const Mismatch&) {
      error = std::current_exception();
    }
    finish(*receive, error);
    return;
  }
  if (!incoming_.push(receive, [&] { receive->begin(letter.source, letter.envelope); }, true)) {
    finish(*receive, station_.why_unusable());
    return;
  }
  const std::lock_guard lock(mutex_);
  changed_.notify_all();  // waiters may drive the receive now
}

void Mail::finish(Operation& operation, std::exception_ptr error) {
  operation.complete(std::move(error));
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Mail::handle(int source, const Envelope& envelope, const std::byte* data) {
  switch (envelope.kind) {
    case MailKind::letter: {
      Letter letter{source, envelope, {data, data + envelope.inlined}};
      std::shared_ptr<ReceiveOperation> receive;
      {
        const std::lock_guard lock(mutex_);
        const auto it = std::find_if(receives_.begin(), receives_.end(),
                                     [&](const auto& r) { return r->wants(source, envelope.tag); });
        if (it == receives_.end()) {
          letters_.push_back(std::move(letter));
          return;
        }
        receive = *it;
        receives_.erase(it);
      }
      take(receive, letter);
      return;
    }
    case MailKind::received: {
      std::shared_ptr<SendOperation> send;
      {
        const std::lock_guard lock(mutex_);
        const auto it = std::find_if(sends_.begin(), sends_.end(), [&](const auto& s) {
          return s->target() == source && s->number() == envelope.number;
        });
        if (it == sends_.end()) return;
        send = *it;
        sends_.erase(it);
      }
      send->let_go();
      finish(*send, nullptr);
      return;
    }
    case MailKind::left: station_.peer_left(source); return;
    case MailKind::gave_up: {
      const Cause cause = decode_cause(envelope, data);
      station_.waits().set_gone(source);
      station_.fail(envelope.dtype == kPeerLost ? std::make_exception_ptr(PeerLost(cause.text, cause.ranks))
                                                : std::make_exception_ptr(Aborted(cause.text, cause.ranks)),
                    &cause.text);
      return;
    }
  }
  station_.fail(std::make_exception_ptr(Mismatch(
      fmt::format("received a control message of unknown type {} from rank {}: it runs another version of Hookline. "
                  "Install the same version on all ranks.",
                  static_cast<std::uint32_t>(envelope.kind), source),
      {source})));
}

void Mail::listen() {
  std::vector<std::byte> room(kMailBytes);
  std::vector<std::byte> read(kMailBytes);
  std::unique_ptr<Message> message;
  for (;;) {
    ++looks_;
    if (asked_.exchange(false)) station_.wake_explaining();
    bool came = false;
    try {
      if (!message) message = station_.engine().receive_any(kMailAddress, room.data(), room.size());
      {
        const std::lock_guard lock(listening_mutex_);
        if (ending_) break;
        listened_ = message.get();
      }
      came = message->wait(urgent_.load());
    } catch (const PeerLost&) {
      // A peer disconnected during the receive. The other peers may still send.
      const std::lock_guard lock(listening_mutex_);
      listened_ = nullptr;  // the message ends with this thread
      if (ending_ || station_.engine_closed()) break;
      message.reset();
      continue;
    }
    {
      const std::lock_guard lock(listening_mutex_);
      listened_ = nullptr;
    }
    if (!came) continue;
    const int source = message->source();
    room.swap(read);
    message.reset();
    Envelope envelope;
    std::memcpy(&envelope, read.data(), sizeof envelope);
    const bool whole = envelope.inlined <= kLongestMail && envelope.inlined <= envelope.bytes;
    const bool other = envelope.kind != MailKind::letter && envelope.inlined <= kLongestMail;
    if (source < 0 || source >= station_.size() || !(whole || other)) continue;
    ++heard_[static_cast<std::size_t>(source)];
    handle(source, envelope, read.data() + sizeof envelope);
  }
}

void Mail::end_listening() noexcept {
  const std::lock_guard lock(listening_mutex_);
  ending_ = true;
  if (listened_) listened_->nudge();
}

void Mail::look() noexcept {
  asked_ = true;
  const std::lock_guard lock(listening_mutex_);
  if (listened_) listened_->nudge();
}

void Mail::set_urgent() {
  if (urgent_.exchange(true)) return;
  const std::lock_guard lock(listening_mutex_);
  if (listened_) listened_->nudge();
}

void Mail::end_all() {
  std::list<std::shared_ptr<ReceiveOperation>> receives;
  std::list<std::shared_ptr<SendOperation>> sends;
  {
    const std::lock_guard lock(mutex_);
    receives.swap(receives_);
    sends.swap(sends_);
    letters_.clear();
  }
  const std::exception_ptr cause = station_.why_unusable();
  for (const auto& receive : receives) finish(*receive, cause);
  for (const auto& send : sends) {
    send->let_go();
    finish(*send, cause);
  }
  incoming_.end_all();
}

void Mail::look_around() {
  std::exception_ptr cause;
  {
    const std::lock_guard lock(mutex_);
    if (receives_.empty() && sends_.empty()) urgent_ = false;
    else station_.waits().keep_ticking();
    const Clock::time_point now = Clock::now();
    for (const auto& receive : receives_) {
      if (cause) break;
      std::vector<int> awaited;
      for (int r = 0; r < station_.size(); ++r) {
        if (r != station_.rank() && receive->wants(r, receive->collective().tag)) awaited.push_back(r);
      }
      cause = hopeless(*receive, awaited, now);
    }
    for (const auto& send : sends_) {
      if (cause) break;
      cause = hopeless(*send, {send->target()}, now);
    }
  }
  if (cause) station_.fail(cause);
  station_.close_if_broken(kLastWords);
}

// One dead peer is enough, as in the local backends: it may have been the one that was to send.
std::exception_ptr Mail::hopeless(const Operation& operation, const std::vector<int>& awaited, Clock::time_point now) {
  std::vector<int> here;
  std::copy_if(awaited.begin(), awaited.end(), std::back_inserter(here), [&](int r) { return !station_.has_left(r); });
  if (here.empty()) {
    return std::make_exception_ptr(PeerLost(
        fmt::format("{}: rank {} left the group", station_.context(operation.describe()), fmt::join(awaited, ", ")),
        awaited));
  }
  for (const int rank : here) {
    if (std::exception_ptr dead = if_dead(operation, rank, now)) return dead;
  }
  return now >= operation.deadline() ? station_.not_in_time(operation, awaited) : nullptr;
}

std::exception_ptr Mail::if_dead(const Operation& operation, int rank, Clock::time_point now) {
  Doubts::Seen seen{.lost = false, .heard = heard_[static_cast<std::size_t>(rank)].load(), .looks = looks()};
  std::exception_ptr lost;
  try {
    station_.engine().check(rank);
  } catch (const PeerLost&) {
    seen.lost = true;
    lost = std::current_exception();
  }
  switch (doubts_.judge(rank, seen, now)) {
    case Doubts::Verdict::dead: return station_.died(operation.describe(), rank, lost);
    case Doubts::Verdict::doubted_from_now: look(); return nullptr;
    default: return nullptr;
  }
}

void Mail::wait_until(const std::function<bool()>& over, const Operation& operation) {
  std::unique_lock lock(mutex_);
  while (!over()) {
    const Clock::time_point now = Clock::now();
    changed_.wait_until(lock, std::clamp(operation.deadline(), now + Milliseconds(1), now + kInterruptPeriod));
    if (over()) return;
    lock.unlock();
    if (Clock::now() >= operation.deadline()) look_around();
    check_interrupt();
    lock.lock();
  }
}

}  // namespace hookline::engine
