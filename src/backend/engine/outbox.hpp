// Mail on its way out: small sends, envelopes, and the last words of a rank.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/engine/envelope.hpp"
#include "backend/engine/lane.hpp"

namespace hookline::engine {

class Outbox {
 public:
  explicit Outbox(Station& station);

  /// Posts a message of mail; it is nobody's business whether it arrives. Throws nothing.
  void tell(int to, Envelope envelope, const std::byte* data) noexcept;
  /// The last mail to everybody else, posted even where the group is broken.
  void farewell(Envelope envelope, const std::string& text) noexcept;
  /// Returns when that is through, or after a short time.
  void await_farewells() noexcept;
  /// Has mail that was posted go out, as long as its receivers take it.
  void flush() noexcept;

  /// Messages that were given up, with their memory: they stay until release(), so that words behind them get through.
  void keep(std::shared_ptr<void> messages);
  void release() noexcept;

  void end_all() { lane_.end_all(); }
  void stop() noexcept { lane_.stop(); }

 private:
  Station& station_;
  Lane lane_;  ///< mail, until it is through
  std::mutex mutex_;
  std::vector<std::byte> last_words_;
  std::vector<std::unique_ptr<Message>> farewells_;  ///< by receiver
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace hookline::engine
