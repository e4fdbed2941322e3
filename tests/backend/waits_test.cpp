// Watchdog: requests that completed before the failure of the group succeed, however often waits are interrupted.
#include "backend/engine/waits.hpp"

#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "harness/memory_engine.hpp"

namespace hookline::engine {
namespace {

// A completed request that, as the interface permits, reports completion only to a wait that is not interrupted.
class Arrived final : public Message {
 public:
  bool wait(bool) override {
    if (!nudged_.exchange(false)) return true;
    if (cut_short_) cut_short_();
    return false;
  }
  void nudge() noexcept override { nudged_ = true; }
  int source() const noexcept override { return 1; }

  void cut_short_by(std::function<void()> what) { cut_short_ = std::move(what); }

 private:
  std::atomic<bool> nudged_ = false;
  std::function<void()> cut_short_;
};

TEST(Waits, WhatHadComeCountsThoughItIsNudgedAgainAndAgain) {
  const auto engines = testing::make_memory_engines(2, false);
  Waits waits(2, [] {});
  Arrived message;
  int nudges = 0;
  message.cut_short_by([&] {
    if (++nudges > 4) return;
    waits.set_gone(1);
    waits.stop(true);  // interrupts all waits
  });
  message.nudge();
  std::exception_ptr error;
  const auto never = [] { return Clock::time_point::max(); };
  EXPECT_EQ(waits.wait_for(*engines[0], message, 1, never, error), Waits::Outcome::through);
  EXPECT_GE(nudges, 2);
}

TEST(Waits, WhatWillNotComeEndsWithItsSender) {
  const auto engines = testing::make_memory_engines(2, false);
  Waits waits(2, [] {});
  std::thread ticking([&] { waits.run(); });
  std::byte room{};
  const auto message = engines[0]->receive(1, {2, 1}, &room, 1);
  waits.set_gone(1);
  waits.stop(true);
  std::exception_ptr error;
  const auto never = [] { return Clock::time_point::max(); };
  EXPECT_EQ(waits.wait_for(*engines[0], *message, 1, never, error), Waits::Outcome::stopped);
  waits.end_thread();
  ticking.join();
}

}  // namespace
}  // namespace hookline::engine
