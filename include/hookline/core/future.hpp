// A value that comes later: Promise is its writing end, Future its reading end, and both work in coroutines.
#pragma once

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <hookline/core/call_context.hpp>
#include <hookline/core/deadline.hpp>
#include <hookline/core/error.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

template <class T>
class Future;
template <class T>
class Promise;

namespace core {

/// What a Future<T> holds: nothing, as a value, for void.
template <class T>
using Stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

/// The part of a Future's shared state that does not depend on its type.
///
/// States: pending, then done, once. The thread that moves it to done has written the outcome before, under the lock,
/// and nobody writes afterwards; whoever has seen done() may read without the lock. A continuation is posted by whoever
/// comes second: the completing thread, or on_done on a state that is done already.
class HOOKLINE_EXPORT FutureStateBase {
 public:
  explicit FutureStateBase(std::shared_ptr<Executor> executor);
  FutureStateBase(const FutureStateBase&) = delete;
  FutureStateBase& operator=(const FutureStateBase&) = delete;
  virtual ~FutureStateBase();

  bool done() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Blocks until done; false at the deadline.
  bool wait_until(Clock::time_point deadline);

  /// Has `task` posted to the executor once done. Without an executor it runs in the completing thread, or at once in
  /// this one; never under a lock.
  void on_done(Task task);

  std::exception_ptr error;

 protected:
  /// Runs `write` under the lock and wakes everybody. False, with nothing written, where the state was done before.
  template <class F>
  bool complete(F&& write) {
    std::unique_lock lock(mutex_);
    if (done()) return false;
    write();
    finish(lock);
    return true;
  }

 private:
  void finish(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> done_ = false;
  std::vector<Task> continuations_;
  std::shared_ptr<Executor> executor_;
};

template <class T>
class FutureState final : public FutureStateBase {
 public:
  using FutureStateBase::FutureStateBase;

  bool set_value(Stored<T> v) {
    return complete([&] { value.emplace(std::move(v)); });
  }
  bool set_error(std::exception_ptr e) {
    return complete([&] { error = std::move(e); });
  }

  std::optional<Stored<T>> value;
};

/// What `then` gives for a function that returns R: `Future<R>`, and `Future<U>` where R is that already.
template <class R>
struct Flattened {
  using Value = R;
};
template <class U>
struct Flattened<Future<U>> {
  using Value = U;
};

template <class T>
class CoroutinePromise;

}  // namespace core

/// The writing end. Setting it a second time throws InvalidArgument; dropping it unset fails the future with Aborted.
template <class T>
class Promise {
 public:
  /// Continuations of the future are posted to `executor`; with none they run in the thread that completes it.
  explicit Promise(std::shared_ptr<Executor> executor = nullptr)
      : state_(std::make_shared<core::FutureState<T>>(std::move(executor))) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Promise() {
    if (state_ && !state_->done()) {
      state_->set_error(
          std::make_exception_ptr(Aborted("the promise of this future was dropped before it was fulfilled")));
    }
  }

  Future<T> get_future() const { return Future<T>(state_); }

  void set_value(core::Stored<T> value = {}) {
    if (!state_->set_value(std::move(value))) throw InvalidArgument("a future was given a second result");
  }
  void set_error(std::exception_ptr error) {
    if (!state_->set_error(std::move(error))) throw InvalidArgument("a future was given a second result");
  }

  /// The same, but false instead of an error where the future is done already: for racing completers.
  bool try_set_value(core::Stored<T> value = {}) { return state_->set_value(std::move(value)); }
  bool try_set_error(std::exception_ptr error) { return state_->set_error(std::move(error)); }

  /// Completes with what `f` returns (a value, nothing, or a Future to take over), or with what it throws.
  template <class F>
  void set_from(F&& f);

 private:
  std::shared_ptr<core::FutureState<T>> state_;
};

/// The reading end; copies share one outcome. Safe to use from any thread.
template <class T>
class [[nodiscard]] Future {
 public:
  using promise_type = core::CoroutinePromise<T>;

  static Future ready(core::Stored<T> value = {}) {
    Promise<T> promise;
    promise.set_value(std::move(value));
    return promise.get_future();
  }
  static Future failed(std::exception_ptr error) {
    Promise<T> promise;
    promise.set_error(std::move(error));
    return promise.get_future();
  }

  bool done() const noexcept { return state_->done(); }

  /// Waits for the outcome and returns the value, or throws the error; throws Timeout where neither is there in time.
  /// An interrupt ends the wait.
  T wait(Milliseconds timeout = kDefaultTimeout) const {
    if (!wait_until(deadline_after(timeout))) {
      throw Timeout("a future was not done after " + std::to_string(timeout.count()) + " ms");
    }
    return value();
  }

  /// The same without the outcome: false where it is not there at the deadline.
  bool wait_until(Clock::time_point deadline) const { return state_->wait_until(deadline); }

  /// The value of a completed future, or its error thrown. InvalidArgument where it is not done.
  T value() const {
    if (!done()) throw InvalidArgument("value() of a future that is not done; wait() for it first");
    if (state_->error) std::rethrow_exception(state_->error);
    if constexpr (!std::is_void_v<T>) return *state_->value;
  }

  /// The error of a failed future; null while it is pending and where it succeeded.
  std::exception_ptr error() const { return done() ? state_->error : nullptr; }

  /// Calls `f(future)` with this future once it is done, failed or not, exactly once, on the promise's executor,
  /// in the context of this call. The result completes with what `f` returns (a Future is taken over, not nested) or
  /// throws.
  template <class F>
  auto then(F f) const -> Future<typename core::Flattened<std::invoke_result_t<F&, Future<T>>>::Value> {
    using Value = typename core::Flattened<std::invoke_result_t<F&, Future<T>>>::Value;
    Promise<Value> promise;
    Future<Value> result = promise.get_future();
    on_done([self = *this, f = std::move(f), promise = std::move(promise), context = current_context()]() mutable {
      const ContextScope scope(std::move(context));
      promise.set_from([&]() -> decltype(auto) { return f(std::move(self)); });
    });
    return result;
  }

  /// Has `task` run once this is done, under the same rules as `then`, without a future for its outcome.
  void on_done(Task task) const {
    const auto state = state_;  // the task may run, and end this object's life, before on_done returns
    state->on_done(std::move(task));
  }

  bool await_ready() const noexcept { return done(); }
  void await_suspend(std::coroutine_handle<> caller) const {
    on_done([caller, context = current_context()] {
      const ContextScope scope(context);
      caller.resume();
    });
  }
  T await_resume() const { return value(); }

 private:
  friend class Promise<T>;
  explicit Future(std::shared_ptr<core::FutureState<T>> state) : state_(std::move(state)) {}

  std::shared_ptr<core::FutureState<T>> state_;
};

template <class T>
template <class F>
void Promise<T>::set_from(F&& f) {
  using Result = std::invoke_result_t<F&>;
  try {
    if constexpr (std::is_same_v<std::remove_cvref_t<Result>, Future<T>>) {
      Future<T> inner = f();
      inner.on_done([inner, outer = std::move(*this)]() mutable { outer.set_from([&] { return inner.value(); }); });
    } else if constexpr (std::is_void_v<Result>) {
      f();
      set_value();
    } else {
      set_value(f());
    }
  } catch (...) {
    set_error(std::current_exception());
  }
}

namespace core {

/// A coroutine that returns Future<T> starts at once, in its caller's thread, and completes the future at its end.
template <class T>
class CoroutinePromiseBase {
 public:
  Future<T> get_return_object() { return promise_.get_future(); }
  std::suspend_never initial_suspend() const noexcept { return {}; }
  std::suspend_never final_suspend() const noexcept { return {}; }
  void unhandled_exception() { promise_.set_error(std::current_exception()); }

 protected:
  Promise<T> promise_;
};

template <class T>
class CoroutinePromise final : public CoroutinePromiseBase<T> {
 public:
  void return_value(T value) { this->promise_.set_value(std::move(value)); }
};

template <>
class CoroutinePromise<void> final : public CoroutinePromiseBase<void> {
 public:
  void return_void() { promise_.set_value(); }
};

}  // namespace core

/// Completes when all are done, with their values in order, or with the error of the first one in the list that failed.
template <class T>
Future<std::conditional_t<std::is_void_v<T>, void, std::vector<core::Stored<T>>>> when_all(
    std::vector<Future<T>> futures) {
  std::vector<core::Stored<T>> values;
  std::exception_ptr error;
  for (const Future<T>& future : futures) {
    try {
      if constexpr (std::is_void_v<T>) {
        co_await future;
      } else {
        values.push_back(co_await future);
      }
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  if constexpr (!std::is_void_v<T>) co_return values;
}

/// The same for futures of different types; where one carries nothing, the tuple has a std::monostate.
template <class... T>
Future<std::tuple<core::Stored<T>...>> when_all(Future<T>... futures) {
  std::vector<Future<void>> all;
  (all.push_back(futures.then([](const Future<T>& f) { f.value(); })), ...);
  return when_all(std::move(all)).then([futures...](const Future<void>& outcome) {
    outcome.value();
    const auto value_of = []<class U>(const Future<U>& f) -> core::Stored<U> {
      if constexpr (std::is_void_v<U>) {
        return {};
      } else {
        return f.value();
      }
    };
    return std::tuple<core::Stored<T>...>(value_of(futures)...);
  });
}

}  // namespace hookline
