// LocalOp: the base of the operations of the local backends.
#pragma once

#include <memory>
#include <vector>

#include "backend/driven_work.hpp"

namespace hookline::embedded {

class Engine;

/// Only the thread that holds the claim on the operation's lane (or on the mail) moves it on and completes it; whoever
/// waits drives the engine.
class Pending : public backend::DrivenWork {
 public:
  Pending(std::shared_ptr<Engine> engine, Milliseconds timeout, Collective&& collective);

  /// Runs it as far as it can without waiting; true at its end. Under the claim. Throws what it fails with.
  virtual bool step() = 0;
  /// Grows whenever step() got on.
  virtual std::uint64_t moves() const = 0;
  virtual std::vector<int> awaited() const = 0;
  /// Whether any one of those that are awaited will do.
  virtual bool awaits_any() const { return false; }

 private:
  void refuse_in_forked_child(std::string_view call) const override;
  void drive() override;
  void look() override;
  void hurry() override;
  void hand_over(Task task) override;
  void announce() noexcept override;

  const std::shared_ptr<Engine> engine_;
};

}  // namespace hookline::embedded
