// Watchdog: requests that completed before the failure of the group succeed, however often waits are interrupted.
#include "backend/p2p/watchdog.hpp"

#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "harness/memory_transport.hpp"

namespace hookline::p2p {
namespace {

// A completed request whose wait() returns false if it is interrupted, as the interface permits.
class CompletedRequest final : public Request {
 public:
  bool wait(WaitPolicy) override {
    if (!interrupted_.exchange(false)) return true;
    if (on_interrupt_) on_interrupt_();
    return false;
  }
  void interrupt() noexcept override { interrupted_ = true; }
  int source() const noexcept override { return 1; }

  void on_interrupt(std::function<void()> what) { on_interrupt_ = std::move(what); }

 private:
  std::atomic<bool> interrupted_ = false;
  std::function<void()> on_interrupt_;
};

TEST(Watchdog, CompletedRequestSurvivesInterrupts) {
  const auto transports = testing::make_memory_transports(2, false);
  Watchdog watchdog(2, [] {});
  CompletedRequest message;
  int interrupts = 0;
  message.on_interrupt([&] {
    if (++interrupts > 4) return;
    watchdog.mark_departed(1);
    watchdog.shutdown(true);  // interrupts all waits
  });
  message.interrupt();
  std::exception_ptr error;
  const auto never = [] { return Clock::time_point::max(); };
  EXPECT_EQ(watchdog.wait_for(*transports[0], message, 1, never, error), Watchdog::Outcome::completed);
  EXPECT_GE(interrupts, 2);
}

TEST(Watchdog, RequestOfDepartedPeerIsCancelled) {
  const auto transports = testing::make_memory_transports(2, false);
  Watchdog watchdog(2, [] {});
  std::thread watchdog_thread([&] { watchdog.run(); });
  std::byte buffer{};
  const auto message = transports[0]->receive(1, {2, 1}, &buffer, 1);
  watchdog.mark_departed(1);
  watchdog.shutdown(true);
  std::exception_ptr error;
  const auto never = [] { return Clock::time_point::max(); };
  EXPECT_EQ(watchdog.wait_for(*transports[0], *message, 1, never, error), Watchdog::Outcome::cancelled);
  watchdog.stop_thread();
  watchdog_thread.join();
}

}  // namespace
}  // namespace hookline::p2p
