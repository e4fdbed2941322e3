// Mail on its way out: small sends, envelopes, and the last words of a rank.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/engine/envelope.hpp"
#include "backend/engine/lane.hpp"

namespace hookline::engine {

/// Mail is posted, and waits in a lane until it is through, or until its receiver is given up. While the group is there
/// nobody is: mail waits as long as it takes. From the last words on, a receiver is given up when it has taken no mail
/// for a second, when the time of a small send to it is up, or when its connection is lost. What is not through then
/// stays posted until release(), so that nothing overtakes it.
///
/// Who changes what: last_words_at_ is set once, by farewell(), in whichever thread fails or closes the group.
/// taken_at_ and given_up_ are changed by the one who drives the lane, and read by it and, when the lane has stopped,
/// by the one who awaits the farewells.
class Outbox {
 public:
  explicit Outbox(Station& station);

  /// Posts a message of mail; it is nobody's business whether it arrives. Throws nothing. `until` is how long it may
  /// take where this rank leaves meanwhile.
  void tell(int to, Envelope envelope, const std::byte* data,
            Clock::time_point until = Clock::time_point::max()) noexcept;
  /// The last mail to everybody else, posted even where the group is broken.
  void farewell(Envelope envelope, const std::string& text) noexcept;
  /// Returns when all mail is through, or its receivers are given up. After farewell().
  void flush() noexcept;
  /// Returns when the farewells are through, or their receivers are given up.
  void await_farewells() noexcept;

  /// Messages that were given up, with their memory: they stay until release(), so that words behind them get through.
  void keep(std::shared_ptr<void> messages);
  void release() noexcept;

  void end_all() { lane_.end_all(); }
  void stop() noexcept { lane_.stop(); }

 private:
  class Outgoing;
  struct Receiver {
    std::atomic<Clock::time_point> taken_at = Clock::time_point::min();
    std::atomic<bool> given_up = false;
  };

  bool leaving() const noexcept { return last_words_at_.load() != Clock::time_point::max(); }
  /// When a receiver is given up that takes nothing, for somebody who waits for it since then.
  Clock::time_point patience(int receiver, Clock::time_point since) const noexcept;

  Station& station_;
  Lane lane_;  ///< mail, until it is through
  std::vector<Receiver> receivers_;
  std::atomic<Clock::time_point> last_words_at_ = Clock::time_point::max();
  std::mutex mutex_;
  std::vector<std::byte> last_words_;
  std::vector<std::unique_ptr<Message>> farewells_;  ///< by receiver
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace hookline::engine
