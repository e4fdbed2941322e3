// Executors run continuations: Task (a move-only callable), the Executor interface, and ThreadExecutor.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// A move-only callable that is called at most once.
class Task {
 public:
  Task() = default;

  template <std::invocable F>
    requires(!std::same_as<std::remove_cvref_t<F>, Task>)
  Task(F&& f) : body_(std::make_unique<Body<std::decay_t<F>>>(std::forward<F>(f))) {}

  explicit operator bool() const noexcept { return body_ != nullptr; }
  void operator()() { std::exchange(body_, nullptr)->call(); }

 private:
  struct Callable {
    virtual ~Callable() = default;
    virtual void call() = 0;
  };
  template <class F>
  struct Body final : Callable {
    template <class G>
    explicit Body(G&& g) : f(std::forward<G>(g)) {}
    void call() override { f(); }
    F f;
  };
  std::unique_ptr<Callable> body_;
};

/// Runs each posted task exactly once. post() is thread-safe and does not block.
class HOOKLINE_EXPORT Executor {
 public:
  virtual ~Executor();
  virtual void post(Task task) = 0;
};

/// A thread that runs tasks in posting order. Tasks must not throw. The destructor runs all tasks posted before it,
/// then joins the thread; called from a task on that thread, it detaches the thread instead.
class HOOKLINE_EXPORT ThreadExecutor final : public Executor {
 public:
  /// `name` is the thread name for debuggers and `top -H`, truncated to 15 characters.
  explicit ThreadExecutor(const std::string& name);
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;
  ~ThreadExecutor() override;

  void post(Task task) override;

  /// Returns the executor that runs the current thread; null on other threads.
  static std::shared_ptr<Executor> current();
  /// Runs the next queued task from within a running task. Returns without running one if none is posted by the
  /// deadline. Use it in a task that waits for another task in the same queue.
  static void run_next(Clock::time_point deadline);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hookline
