// Sends control messages: small sends, envelopes, and the goodbye of a rank.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/p2p/envelope.hpp"
#include "backend/p2p/lane.hpp"

namespace hookline::p2p {

/// Each message is posted at once and completes in a lane. While the group is open, a message waits for its receiver
/// without a timeout. After broadcast_goodbye() a receiver is abandoned if it has completed no message for 1 s, if the
/// deadline of a small send to it has passed, or if it is disconnected. Messages to an abandoned receiver stay posted
/// until release_retained(), so that later messages do not overtake them.
///
/// Threading: broadcast_goodbye() sets goodbye_at_ once, in the thread that fails or closes the group. The lane's
/// driver writes last_completed_at and abandoned; it and, once the lane has stopped, flush_goodbyes() read them.
class ControlSender {
 public:
  explicit ControlSender(P2PContext& context);

  /// Posts a control message and ignores errors: a lost peer is reported where this rank waits for it. `deadline`
  /// limits the message once this rank leaves.
  void send(int peer, Envelope envelope, const std::byte* data,
            Clock::time_point deadline = Clock::time_point::max()) noexcept;
  /// Posts the last message to all peers, even if the group has failed.
  void broadcast_goodbye(Envelope envelope, const std::string& payload) noexcept;
  /// Blocks until all messages have completed or their receivers are abandoned. Call after broadcast_goodbye().
  void flush() noexcept;
  /// Blocks until the goodbyes have completed or their receivers are abandoned.
  void flush_goodbyes() noexcept;

  /// Keeps abandoned requests and their buffers posted until release_retained(). Without them, a transport that
  /// multiplexes a connection could not deliver later messages.
  void retain_until_close(std::shared_ptr<void> requests);
  void release_retained() noexcept;

  void fail_pending() { lane_.fail_pending(); }
  void stop() noexcept { lane_.stop(); }

 private:
  class SendTask;
  struct Receiver {
    std::atomic<Clock::time_point> last_completed_at = Clock::time_point::min();
    std::atomic<bool> abandoned = false;
  };

  bool is_closing() const noexcept { return goodbye_at_.load() != Clock::time_point::max(); }
  /// Returns the deadline of a send to `receiver` that started to wait at `since`. Each completed send to this receiver
  /// extends it; a receiver that misses it is abandoned.
  Clock::time_point send_deadline(int receiver, Clock::time_point since) const noexcept;

  P2PContext& context_;
  Lane lane_;  ///< messages that have not completed
  std::vector<Receiver> receivers_;
  std::atomic<Clock::time_point> goodbye_at_ = Clock::time_point::max();
  std::mutex mutex_;
  std::vector<std::byte> goodbye_bytes_;
  std::vector<std::unique_ptr<Request>> goodbyes_;  ///< by receiver
  std::vector<std::shared_ptr<void>> retained_;
};

}  // namespace hookline::p2p
