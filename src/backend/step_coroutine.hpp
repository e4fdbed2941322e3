// StepCoroutine: an operation's state machine, written as a coroutine that is resumed step by step.
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

namespace hookline::backend {

/// Memory for the frame of one coroutine.
struct FrameStorage {
  alignas(std::max_align_t) std::array<std::byte, 256> bytes;
};

/// A coroutine that suspends at `co_await kYield`; step() resumes it until the next suspension or its end. It starts
/// suspended and never blocks: its driver does the waiting. The coroutine is a member function of a class with
/// `frame_storage()`, which holds the frame if it fits. A FrameStorage holds one frame at a time, until the coroutine
/// ends.
class StepCoroutine {
 public:
  struct promise_type {
    std::exception_ptr error;

    template <class Self, class... Arguments>
    static void* operator new(std::size_t bytes, Self& self, const Arguments&...) {
      return bytes <= sizeof(FrameStorage) ? self.frame_storage().bytes.data() : ::operator new(bytes);
    }
    static void operator delete(void* frame, std::size_t bytes) {
      if (bytes > sizeof(FrameStorage)) ::operator delete(frame);
    }

    StepCoroutine get_return_object() {
      return StepCoroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }
  };

  StepCoroutine() = default;
  StepCoroutine(StepCoroutine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  StepCoroutine& operator=(StepCoroutine&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~StepCoroutine() {
    if (handle_) handle_.destroy();
  }

  /// Runs one step. Returns true at the end of the coroutine; rethrows its exception.
  bool step() {
    handle_.resume();
    if (!handle_.done()) return false;
    const std::exception_ptr error = std::move(handle_.promise().error);
    std::exchange(handle_, nullptr).destroy();
    if (error) std::rethrow_exception(error);
    return true;
  }

 private:
  explicit StepCoroutine(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

inline constexpr std::suspend_always kYield{};

}  // namespace hookline::backend
