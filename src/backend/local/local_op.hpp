// LocalOp: the base of the operations of the local backends.
#pragma once

#include <memory>
#include <vector>

#include "backend/op_work.hpp"

namespace hookline::local {

class LocalContext;

/// Only the thread that holds the driver lock of the operation's lane (or of the mailboxes) steps and completes it. A
/// waiting thread drives the whole context.
class LocalOp : public backend::OpWork {
 public:
  LocalOp(std::shared_ptr<LocalContext> context, Milliseconds timeout, Operation&& operation);

  /// Runs as far as possible without blocking. Returns true when the operation is done; throws its error. Requires the
  /// driver lock.
  virtual bool step() = 0;
  /// Returns a counter that grows when step() makes progress.
  virtual std::uint64_t progress() const = 0;
  virtual std::vector<int> awaited_ranks() const = 0;
  /// True if a message from any one of the awaited ranks completes the operation, as in a receive from any source.
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
