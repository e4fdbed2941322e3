// The thread-local call context.
#include <hookline/core/call_context.hpp>

#include <utility>

namespace hookline {
namespace {

CallContext& thread_context() noexcept {
  thread_local CallContext context;
  return context;
}

}  // namespace

const CallContext& current_context() noexcept { return thread_context(); }

ContextScope::ContextScope(CallContext context) noexcept
    : previous_(std::exchange(thread_context(), std::move(context))) {}
ContextScope::~ContextScope() { thread_context() = std::move(previous_); }

}  // namespace hookline
