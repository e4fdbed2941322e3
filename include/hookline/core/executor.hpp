// Where continuations run: a move-only piece of work, the interface that takes it, and a thread that runs it.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// A function to be called once. Unlike std::function it can hold what cannot be copied.
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

/// Runs tasks, each exactly once, on threads of its choice. `post` may be called from any thread and does not wait.
class HOOKLINE_EXPORT Executor {
 public:
  virtual ~Executor();
  virtual void post(Task task) = 0;
};

/// One thread that runs tasks in the order in which they were posted. A task must not throw. The destructor runs what
/// was posted before it, then joins; where it is called on the thread itself, the thread ends on its own after that.
class HOOKLINE_EXPORT ThreadExecutor final : public Executor {
 public:
  /// `name` is what debuggers and `top -H` show (15 characters are kept).
  explicit ThreadExecutor(const std::string& name);
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;
  ~ThreadExecutor() override;

  void post(Task task) override;

  /// The executor of the task that runs on this thread, for as long as it runs; null on other threads.
  static std::shared_ptr<Executor> current();
  /// For a task that has to wait, perhaps for one behind it: runs the next one, or returns where none was posted until
  /// then.
  static void run_next(Clock::time_point until);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hookline
