// CallContext: thread-local attributes of the operations that a thread starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <hookline/core/export.hpp>

namespace hookline {

/// Attributes of the operations that the current thread starts. Continuations and coroutines inherit them.
///
/// `lane` selects the lane, an ordered sequence of collectives; user calls run on lane 0, hooks on others. `op_tag`
/// goes into the header of every operation, to detect ranks at different points of a step and for error messages.
/// `bytes_sent`, if set, counts the bytes that operations send.
struct CallContext {
  int lane = 0;
  std::uint64_t op_tag = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent = nullptr;
};

/// Returns the context of the current thread.
HOOKLINE_EXPORT const CallContext& current_context() noexcept;

/// Sets the context of the current thread and restores the previous one on destruction.
class HOOKLINE_EXPORT ContextScope {
 public:
  explicit ContextScope(CallContext context) noexcept;
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();

 private:
  CallContext previous_;
};

}  // namespace hookline
