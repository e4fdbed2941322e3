// Posting mail, and what becomes of it when the rank leaves.
#include "backend/engine/outbox.hpp"

#include <algorithm>
#include <cstring>

#include <hookline/core/error.hpp>

#include "backend/engine/station.hpp"

namespace hookline::engine {
namespace {

constexpr MessageAddress kAddress{kMailChannel, 0};
constexpr Milliseconds kFlush{250};      // how long mail may take where a peer does not listen
constexpr Milliseconds kFarewell{1000};  // and the last words: a peer without them cannot tell leaving from death

std::vector<std::byte> written(Envelope envelope, const std::byte* data) {
  std::vector<std::byte> bytes(sizeof envelope + envelope.inlined);
  std::memcpy(bytes.data(), &envelope, sizeof envelope);
  if (envelope.inlined > 0) std::memcpy(bytes.data() + sizeof envelope, data, envelope.inlined);
  return bytes;
}

// Mail under way: it needs its memory, and nothing else of this rank.
class Outgoing final : public Script {
 public:
  Outgoing(Outbox& outbox, int to, std::vector<std::byte> bytes)
      : outbox_(outbox), to_(to), posted_(std::make_shared<Posted>(std::move(bytes))) {}
  void post(Engine& engine) {
    posted_->message = engine.send(to_, kAddress, posted_->bytes.data(), posted_->bytes.size());
  }
  bool step() override { return through(posted_->message, to_); }
  void finish(std::exception_ptr error) override {
    if (error) outbox_.keep(posted_);
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

  Outbox& outbox_;
  const int to_;
  std::shared_ptr<Posted> posted_;
};

}  // namespace

Outbox::Outbox(Station& station) : station_(station), lane_(station) {}

void Outbox::tell(int to, Envelope envelope, const std::byte* data) noexcept {
  try {
    const auto outgoing = std::make_shared<Outgoing>(*this, to, written(envelope, data));
    lane_.push(outgoing, [&] { outgoing->post(station_.engine()); }, false);
  } catch (const std::exception&) {
    // A peer that is lost shows where somebody waits for it.
  }
}

void Outbox::farewell(Envelope envelope, const std::string& text) noexcept {
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

void Outbox::await_farewells() noexcept {
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

void Outbox::keep(std::shared_ptr<void> messages) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(messages));
}

void Outbox::release() noexcept {
  std::vector<std::shared_ptr<void>> kept;
  const std::lock_guard lock(mutex_);
  kept.swap(kept_);
}

void Outbox::flush() noexcept { lane_.flush(kFlush); }

}  // namespace hookline::engine
