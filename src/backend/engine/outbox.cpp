// Posts control messages, and flushes them when the rank leaves.
#include "backend/engine/outbox.hpp"

#include <algorithm>
#include <cstring>

#include <hookline/core/error.hpp>

#include "backend/engine/station.hpp"

namespace hookline::engine {
namespace {

// Generous, since a peer without a goodbye takes this rank for dead: a link may be slow, and a process busy.
constexpr Milliseconds kPatience{1000};
constexpr Milliseconds kLook{50};  // for a message that completed during the wait for another receiver

std::vector<std::byte> written(Envelope envelope, const std::byte* data) {
  std::vector<std::byte> bytes(sizeof envelope + envelope.inlined);
  std::memcpy(bytes.data(), &envelope, sizeof envelope);
  if (envelope.inlined > 0) std::memcpy(bytes.data() + sizeof envelope, data, envelope.inlined);
  return bytes;
}

}  // namespace

/// A control message that has not completed. It owns its buffer.
class Outbox::Outgoing final : public Script {
 public:
  Outgoing(Outbox& outbox, int to, std::vector<std::byte> bytes, Clock::time_point until)
      : outbox_(outbox), to_(to), until_(until), posted_(std::make_shared<Posted>(std::move(bytes))) {}
  void post(Engine& engine) {
    posted_->message = engine.send(to_, kMailAddress, posted_->bytes.data(), posted_->bytes.size());
  }

  bool step() override {
    if (receiver().given_up) return true;
    if (head_since_ == Clock::time_point::max()) head_since_ = Clock::now();
    through_ = through(posted_->message, to_);
    return through_;
  }
  void finish(std::exception_ptr error) override {
    if (through_) {
      receiver().taken_at = Clock::now();
    } else if (error || outbox_.leaving()) {
      receiver().given_up = true;
      outbox_.keep(posted_);
    }
    posted_.reset();
  }
  // Only the head of the lane has a deadline.
  Clock::time_point until() const override {
    if (head_since_ == Clock::time_point::max() || !outbox_.leaving()) return Clock::time_point::max();
    return std::min(outbox_.patience(to_, head_since_), until_);
  }
  std::exception_ptr time_up() override { return nullptr; }
  std::string what() const override { return "control message"; }
  bool counts() const override { return false; }

 private:
  struct Posted {
    explicit Posted(std::vector<std::byte>&& b) : bytes(std::move(b)) {}
    const std::vector<std::byte> bytes;
    std::unique_ptr<Message> message;
  };

  Receiver& receiver() const { return outbox_.receivers_[static_cast<std::size_t>(to_)]; }

  Outbox& outbox_;
  const int to_;
  const Clock::time_point until_;
  std::shared_ptr<Posted> posted_;
  Clock::time_point head_since_ = Clock::time_point::max();
  bool through_ = false;
};

Outbox::Outbox(Station& station)
    : station_(station), lane_(station), receivers_(static_cast<std::size_t>(station.size())) {}

void Outbox::tell(int to, Envelope envelope, const std::byte* data, Clock::time_point until) noexcept {
  try {
    const auto outgoing = std::make_shared<Outgoing>(*this, to, written(envelope, data), until);
    lane_.push(outgoing, [&] { outgoing->post(station_.engine()); }, false);
  } catch (const std::exception&) {
    // A lost peer is reported where this rank waits for it.
  }
}

Clock::time_point Outbox::patience(int receiver, Clock::time_point since) const noexcept {
  const Clock::time_point taken_at = receivers_[static_cast<std::size_t>(receiver)].taken_at;
  return std::max(std::max(taken_at, last_words_at_.load()) + kPatience, since + kLook);
}

void Outbox::farewell(Envelope envelope, const std::string& text) noexcept {
  try {
    envelope.inlined = static_cast<std::uint32_t>(std::min(text.size(), kLongestMail));
    const std::lock_guard lock(mutex_);
    last_words_at_ = Clock::now();
    last_words_ = written(envelope, reinterpret_cast<const std::byte*>(text.data()));
    farewells_.resize(static_cast<std::size_t>(station_.size()));
    for (int r = 0; r < station_.size(); ++r) {
      if (r == station_.rank() || station_.has_left(r)) continue;
      try {
        farewells_[static_cast<std::size_t>(r)] =
            station_.engine().send(r, kMailAddress, last_words_.data(), last_words_.size());
      } catch (const PeerLost&) {
        // A disconnected peer needs no goodbye.
      }
    }
  } catch (const std::exception&) {
    // Out of memory: the peers notice when the connections close.
  }
}

void Outbox::await_farewells() noexcept {
  std::vector<std::unique_ptr<Message>> said;
  {
    const std::lock_guard lock(mutex_);
    said.swap(farewells_);
  }
  for (std::size_t r = 0; r < said.size(); ++r) {
    if (!said[r]) continue;
    const int receiver = static_cast<int>(r);
    const Clock::time_point deadline = patience(receiver, Clock::now());
    std::exception_ptr ignored;
    try {
      station_.waits().wait_for(station_.engine(), *said[r], receiver, [&] { return deadline; }, ignored, true);
    } catch (...) {  // interrupted
      return;
    }
  }
}

void Outbox::keep(std::shared_ptr<void> messages) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(messages));
}

void Outbox::release() noexcept {
  std::vector<std::shared_ptr<void>> kept;
  const std::lock_guard lock(mutex_);
  kept.swap(kept_);
}

void Outbox::flush() noexcept { lane_.flush(); }

}  // namespace hookline::engine
