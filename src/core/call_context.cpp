// The thread-local call context.
#include <hookline/core/call_context.hpp>

#include <utility>

namespace hookline {
namespace {

CallContext& context_of_thread() noexcept {
  thread_local CallContext context;
  return context;
}

}  // namespace

const CallContext& current_context() noexcept { return context_of_thread(); }

ContextScope::ContextScope(CallContext context) noexcept
    : before_(std::exchange(context_of_thread(), std::move(context))) {}
ContextScope::~ContextScope() { context_of_thread() = std::move(before_); }

}  // namespace hookline
