// What the operations that a thread starts belong to; coroutines and continuations take it along.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include <hookline/core/export.hpp>

namespace hookline {

/// A lane is an ordered sequence of collectives: 0, the user's, unless a hook runs. The note goes into the headers of
/// operations, for error texts and for noticing ranks that are not at the same point. Where there is a counter, the
/// bytes that operations send are added to it.
struct CallContext {
  int lane = 0;
  std::uint64_t note = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> sent = nullptr;
};

/// That of this thread.
HOOKLINE_EXPORT const CallContext& current_context() noexcept;

/// Makes a context the current one of this thread while it lives.
class HOOKLINE_EXPORT ContextScope {
 public:
  explicit ContextScope(CallContext context) noexcept;
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();

 private:
  CallContext before_;
};

}  // namespace hookline
