// LocalOp: the base of the operations of the local backends.
#pragma once

#include <memory>
#include <vector>

#include "backend/op_work.hpp"

namespace hookline::local {

class LocalContext;

/// Only the thread that holds the claim on the operation's lane (or on the mail) moves it on and completes it; whoever
/// waits drives the engine.
class LocalOp : public backend::OpWork {
 public:
  LocalOp(std::shared_ptr<LocalContext> context, Milliseconds timeout, Operation&& operation);

  /// Runs it as far as it can without waiting; true at its end. Under the claim. Throws what it fails with.
  virtual bool step() = 0;
  /// Grows whenever step() got on.
  virtual std::uint64_t progress() const = 0;
  virtual std::vector<int> awaited_ranks() const = 0;
  /// Whether any one of those that are awaited will do.
  virtual bool awaits_any() const { return false; }

 private:
  void refuse_in_forked_child(std::string_view call) const override;
  void drive() override;
  void poll() override;
  void expedite() override;
  void post_to_worker(Task task) override;
  void notify() noexcept override;

  const std::shared_ptr<LocalContext> context_;
};

}  // namespace hookline::local
