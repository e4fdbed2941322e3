// Posts control messages, and flushes them when the rank leaves.
#include "backend/p2p/control_sender.hpp"

#include <algorithm>
#include <cstring>

#include <hookline/core/error.hpp>

#include "backend/p2p/p2p_context.hpp"

namespace hookline::p2p {
namespace {

// Long enough for a slow link or a busy process: a peer that receives no goodbye treats this rank as dead.
constexpr Milliseconds kGoodbyeTimeout{1000};
// Minimum wait for a message at the head of the lane. It may have completed while the lane waited for another receiver.
constexpr Milliseconds kMinSendTime{50};

std::vector<std::byte> serialize(Envelope envelope, const std::byte* data) {
  std::vector<std::byte> bytes(sizeof envelope + envelope.inline_bytes);
  std::memcpy(bytes.data(), &envelope, sizeof envelope);
  if (envelope.inline_bytes > 0) std::memcpy(bytes.data() + sizeof envelope, data, envelope.inline_bytes);
  return bytes;
}

}  // namespace

/// A control message that has not completed. It owns its buffer.
class ControlSender::SendTask final : public LaneTask {
 public:
  SendTask(ControlSender& sender, int peer, std::vector<std::byte> bytes, Clock::time_point deadline)
      : sender_(sender),
        peer_rank_(peer),
        deadline_(deadline),
        buffered_(std::make_shared<BufferedSend>(std::move(bytes))) {}
  void post(Transport& transport) {
    buffered_->request = transport.send(peer_rank_, kControlTag, buffered_->bytes.data(), buffered_->bytes.size());
  }

  bool step() override {
    if (receiver().abandoned) return true;
    if (head_since_ == Clock::time_point::max()) head_since_ = Clock::now();
    completed_ = test_request(buffered_->request, peer_rank_);
    return completed_;
  }
  void finish(std::exception_ptr error) override {
    if (completed_) {
      receiver().last_completed_at = Clock::now();
    } else if (error || sender_.is_closing()) {
      receiver().abandoned = true;
      sender_.retain_until_close(buffered_);
    }
    buffered_.reset();
  }
  // Returns max() until the task is at the head of the lane and the group is closing.
  Clock::time_point task_deadline() const override {
    if (head_since_ == Clock::time_point::max() || !sender_.is_closing()) return Clock::time_point::max();
    return std::min(sender_.send_deadline(peer_rank_, head_since_), deadline_);
  }
  std::exception_ptr timeout_error() override { return nullptr; }
  std::string description() const override { return "control message"; }
  bool fails_group() const override { return false; }

 private:
  struct BufferedSend {
    explicit BufferedSend(std::vector<std::byte>&& b) : bytes(std::move(b)) {}
    const std::vector<std::byte> bytes;
    std::unique_ptr<Request> request;
  };

  Receiver& receiver() const { return sender_.receivers_[static_cast<std::size_t>(peer_rank_)]; }

  ControlSender& sender_;
  const int peer_rank_;
  const Clock::time_point deadline_;
  std::shared_ptr<BufferedSend> buffered_;
  Clock::time_point head_since_ = Clock::time_point::max();
  bool completed_ = false;
};

ControlSender::ControlSender(P2PContext& context)
    : context_(context), lane_(context), receivers_(static_cast<std::size_t>(context.size())) {}

void ControlSender::send(int peer, Envelope envelope, const std::byte* data, Clock::time_point deadline) noexcept {
  try {
    const auto task = std::make_shared<SendTask>(*this, peer, serialize(envelope, data), deadline);
    lane_.push(task, [&] { task->post(context_.transport()); }, false);
  } catch (const std::exception&) {
    // A lost peer is reported where this rank waits for it.
  }
}

Clock::time_point ControlSender::send_deadline(int receiver, Clock::time_point since) const noexcept {
  const Clock::time_point completed_at = receivers_[static_cast<std::size_t>(receiver)].last_completed_at;
  return std::max(std::max(completed_at, goodbye_at_.load()) + kGoodbyeTimeout, since + kMinSendTime);
}

void ControlSender::broadcast_goodbye(Envelope envelope, const std::string& payload) noexcept {
  try {
    envelope.inline_bytes = static_cast<std::uint32_t>(std::min(payload.size(), kMaxControlPayload));
    const std::lock_guard lock(mutex_);
    goodbye_at_ = Clock::now();
    goodbye_bytes_ = serialize(envelope, reinterpret_cast<const std::byte*>(payload.data()));
    goodbyes_.resize(static_cast<std::size_t>(context_.size()));
    for (int r = 0; r < context_.size(); ++r) {
      if (r == context_.rank() || context_.has_departed(r)) continue;
      try {
        goodbyes_[static_cast<std::size_t>(r)] =
            context_.transport().send(r, kControlTag, goodbye_bytes_.data(), goodbye_bytes_.size());
      } catch (const PeerLost&) {
        // A disconnected peer needs no goodbye.
      }
    }
  } catch (const std::exception&) {
    // Out of memory: the peers notice when the connections close.
  }
}

void ControlSender::flush_goodbyes() noexcept {
  std::vector<std::unique_ptr<Request>> goodbyes;
  {
    const std::lock_guard lock(mutex_);
    goodbyes.swap(goodbyes_);
  }
  for (std::size_t r = 0; r < goodbyes.size(); ++r) {
    if (!goodbyes[r]) continue;
    const int receiver = static_cast<int>(r);
    const Clock::time_point deadline = send_deadline(receiver, Clock::now());
    std::exception_ptr ignored;
    try {
      context_.watchdog().wait_for(
          context_.transport(), *goodbyes[r], receiver, [&] { return deadline; }, ignored, true);
    } catch (...) {  // interrupted
      return;
    }
  }
}

void ControlSender::retain_until_close(std::shared_ptr<void> requests) {
  const std::lock_guard lock(mutex_);
  retained_.push_back(std::move(requests));
}

void ControlSender::release_retained() noexcept {
  std::vector<std::shared_ptr<void>> retained;
  const std::lock_guard lock(mutex_);
  retained.swap(retained_);
}

void ControlSender::flush() noexcept { lane_.flush(); }

}  // namespace hookline::p2p
