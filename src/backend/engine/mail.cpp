// The thread that listens, the matching of receives with what came, and the last words of a rank.
#include "backend/engine/mail.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/engine/letters.hpp"
#include "backend/engine/station.hpp"

namespace hookline::engine {
namespace {

constexpr MessageAddress kAddress{kMailChannel, 0};
constexpr Milliseconds kFlush{250};       // how long mail may take where a peer does not listen
constexpr Milliseconds kFarewell{1000};   // and the last words: a peer without them cannot tell leaving from death
constexpr Milliseconds kLastWords{1000};  // after that a broken group closes its connections

std::vector<std::byte> written(Envelope envelope, const std::byte* data) {
  std::vector<std::byte> bytes(sizeof envelope + envelope.inlined);
  std::memcpy(bytes.data(), &envelope, sizeof envelope);
  if (envelope.inlined > 0) std::memcpy(bytes.data() + sizeof envelope, data, envelope.inlined);
  return bytes;
}

// Mail under way: it needs its memory, and nothing else of this rank.
class Outgoing final : public Script {
 public:
  Outgoing(Mail& mail, int to, std::vector<std::byte> bytes)
      : mail_(mail), to_(to), posted_(std::make_shared<Posted>(std::move(bytes))) {}
  void post(Engine& engine) {
    posted_->message = engine.send(to_, kAddress, posted_->bytes.data(), posted_->bytes.size());
  }
  bool step() override { return through(posted_->message, to_); }
  void finish(std::exception_ptr error) override {
    if (error) mail_.keep(posted_);
    posted_.reset();
  }
  Clock::time_point until() const override { return Clock::time_point::max(); }
  std::exception_ptr time_up() override { return nullptr; }
  std::string what() const override { return "mail"; }
  bool counts() const override { return false; }

 private:
  struct Posted {
    explicit Posted(std::vector<std::byte>&& b) : bytes(std::move(b)) {}
    const std::vector<std::byte> bytes;
    std::unique_ptr<Message> message;
  };

  Mail& mail_;
  const int to_;
  std::shared_ptr<Posted> posted_;
};

}  // namespace

Mail::Mail(Station& station)
    : station_(station),
      incoming_(station),
      outgoing_(station),
      data_numbers_(static_cast<std::size_t>(station.size())) {}

void Mail::tell(int to, Envelope envelope, const std::byte* data) noexcept {
  try {
    const auto outgoing = std::make_shared<Outgoing>(*this, to, written(envelope, data));
    outgoing_.push(outgoing, [&] { outgoing->post(station_.engine()); }, false);
  } catch (const std::exception&) {
    // A peer that is lost shows where somebody waits for it.
  }
}

WorkPtr Mail::send(Collective&& collective, Milliseconds timeout) {
  auto send = std::make_shared<SendOperation>(station_.shared_from_this(), timeout, std::move(collective));
  Envelope envelope{.tag = send->collective().tag,
                    .dtype = static_cast<std::uint32_t>(send->data().dtype()),
                    .bytes = send->data().nbytes()};
  if (envelope.bytes <= kLongestMail) {
    envelope.inlined = static_cast<std::uint32_t>(envelope.bytes);
    tell(send->target(), envelope, send->data().bytes());
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
    if (!lost) tell(send->target(), envelope, nullptr);
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

// From the thread that listens, or the one that starts the receive: nobody else has it then.
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
  changed_.notify_all();  // who waits for it may drive it now
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
      const std::string text(reinterpret_cast<const char*>(data), envelope.inlined);
      station_.waits().set_gone(source);
      station_.fail(envelope.dtype == kPeerLost ? std::make_exception_ptr(PeerLost(text))
                                                : std::make_exception_ptr(Aborted(text)),
                    &text);
      return;
    }
  }
  station_.fail(std::make_exception_ptr(
      Mismatch(fmt::format("rank {} sent mail of an unknown kind: it runs another version of Hookline", source))));
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
      if (!message) message = station_.engine().receive_any(kAddress, room.data(), room.size());
      {
        const std::lock_guard lock(listening_mutex_);
        if (ending_) break;
        listened_ = message.get();
      }
      came = message->wait(urgent_.load());
    } catch (const PeerLost&) {
      // One of them is gone while its mail was coming; the others' is still of interest.
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
  outgoing_.end_all();
}

void Mail::look_around() {
  std::exception_ptr cause;
  {
    const std::lock_guard lock(mutex_);
    if (receives_.empty() && sends_.empty()) urgent_ = false;
    else station_.waits().keep_ticking();
    const Clock::time_point now = Clock::now();
    const auto look = [&](const Operation& operation, const std::vector<int>& awaited) {
      const bool gone = std::all_of(awaited.begin(), awaited.end(), [&](int r) { return station_.has_left(r); });
      if (gone) {
        cause = std::make_exception_ptr(PeerLost(fmt::format(
            "{}: rank {} left the group", station_.context(operation.describe()), fmt::join(awaited, ", "))));
      } else if (now >= operation.deadline()) {
        cause = station_.not_in_time(operation, awaited);
      }
    };
    for (const auto& receive : receives_) {
      if (cause) break;
      std::vector<int> awaited;
      for (int r = 0; r < station_.size(); ++r) {
        if (r != station_.rank() && receive->wants(r, receive->collective().tag)) awaited.push_back(r);
      }
      look(*receive, awaited);
    }
    for (const auto& send : sends_) {
      if (cause) break;
      look(*send, {send->target()});
    }
  }
  if (cause) station_.fail(cause);
  station_.close_if_broken(kLastWords);
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

void Mail::farewell(Envelope envelope, const std::string& text) noexcept {
  try {
    envelope.inlined = static_cast<std::uint32_t>(std::min(text.size(), kLongestMail));
    const std::lock_guard lock(mutex_);
    last_words_ = written(envelope, reinterpret_cast<const std::byte*>(text.data()));
    farewells_.resize(static_cast<std::size_t>(station_.size()));
    for (int r = 0; r < station_.size(); ++r) {
      if (r == station_.rank() || station_.has_left(r)) continue;
      try {
        farewells_[static_cast<std::size_t>(r)] =
            station_.engine().send(r, kAddress, last_words_.data(), last_words_.size());
      } catch (const PeerLost&) {
        // It will not miss these words.
      }
    }
  } catch (const std::exception&) {
    // Without memory for them the peers learn of it when the connections close.
  }
}

void Mail::await_farewells() noexcept {
  std::vector<std::unique_ptr<Message>> said;
  {
    const std::lock_guard lock(mutex_);
    said.swap(farewells_);
  }
  const Clock::time_point deadline = Clock::now() + kFarewell;
  for (std::size_t r = 0; r < said.size(); ++r) {
    if (!said[r]) continue;
    std::exception_ptr ignored;
    try {
      station_.waits().wait_for(
          station_.engine(), *said[r], static_cast<int>(r), [&] { return deadline; }, ignored, true);
    } catch (...) {  // interrupted
      return;
    }
  }
}

void Mail::keep(std::shared_ptr<void> messages) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(messages));
}

void Mail::release() noexcept {
  std::vector<std::shared_ptr<void>> kept;
  const std::lock_guard lock(mutex_);
  kept.swap(kept_);
}

void Mail::flush() noexcept { outgoing_.flush(kFlush); }

void Mail::stop_lanes() noexcept {
  incoming_.stop();
  outgoing_.stop();
}

}  // namespace hookline::engine
