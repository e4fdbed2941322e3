// Promise and Future: the result of an asynchronous operation, with continuations and coroutine support.
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

/// The value type of a Future<T>; std::monostate for void.
template <class T>
using FutureValue = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

/// The type-independent part of a Future's shared state.
///
/// The state moves from pending to done exactly once. The completing thread writes the outcome under the lock and then
/// stores `done_` (release); the outcome is immutable afterwards, so a reader that has loaded `done_` (acquire) needs
/// no lock. Each continuation is posted exactly once: by the completing thread, or by on_done() if the state is done.
class HOOKLINE_EXPORT FutureStateBase {
 public:
  explicit FutureStateBase(std::shared_ptr<Executor> executor);
  FutureStateBase(const FutureStateBase&) = delete;
  FutureStateBase& operator=(const FutureStateBase&) = delete;
  virtual ~FutureStateBase();

  bool done() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Blocks until done (returns true) or until the deadline (returns false).
  bool wait_until(Clock::time_point deadline);

  /// Posts `task` to the executor once done. Without an executor, runs it in the completing thread, or in the caller if
  /// already done. Never runs it under a lock.
  void on_done(Task task);

  std::exception_ptr error;

 protected:
  /// Runs `write` under the lock and wakes all waiters. Returns false, without calling `write`, if already done.
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
  std::condition_variable completed_;
  std::atomic<bool> done_ = false;
  std::vector<Task> continuations_;
  std::shared_ptr<Executor> executor_;
};

template <class T>
class FutureState final : public FutureStateBase {
 public:
  using FutureStateBase::FutureStateBase;

  bool set_value(FutureValue<T> v) {
    return complete([&] { value.emplace(std::move(v)); });
  }
  bool set_error(std::exception_ptr e) {
    return complete([&] { error = std::move(e); });
  }

  std::optional<FutureValue<T>> value;
};

/// The value type of the future that then() returns for a function returning R: R, or U if R is `Future<U>`.
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

/// Completes a Future. A second result throws InvalidArgument; destroying an unfulfilled Promise fails the future with
/// Aborted.
template <class T>
class Promise {
 public:
  /// Posts continuations of the future to `executor`; without one, they run in the completing thread.
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
          std::make_exception_ptr(Aborted("the promise of this future was destroyed before it was fulfilled")));
    }
  }

  Future<T> get_future() const { return Future<T>(state_); }

  void set_value(core::FutureValue<T> value = {}) {
    if (!state_->set_value(std::move(value))) throw InvalidArgument("Promise::set_value: already fulfilled");
  }
  void set_error(std::exception_ptr error) {
    if (!state_->set_error(std::move(error))) throw InvalidArgument("Promise::set_error: already fulfilled");
  }

  /// As above, but returns false if the future is already done. Use it if several threads may complete the future.
  bool try_set_value(core::FutureValue<T> value = {}) { return state_->set_value(std::move(value)); }
  bool try_set_error(std::exception_ptr error) { return state_->set_error(std::move(error)); }

  /// Completes with the result of `f` (a value, void, or the outcome of a returned Future) or with the exception it
  /// throws.
  template <class F>
  void set_from(F&& f);

 private:
  std::shared_ptr<core::FutureState<T>> state_;
};

/// The result of an asynchronous operation. Copies share one state. Thread-safe.
template <class T>
class [[nodiscard]] Future {
 public:
  using promise_type = core::CoroutinePromise<T>;

  static Future ready(core::FutureValue<T> value = {}) {
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

  /// Blocks until done, then returns the value or throws the error. Throws Timeout if still pending after `timeout`,
  /// and the exception of an interrupt (see InterruptScope).
  T wait(Milliseconds timeout = kDefaultTimeout) const {
    if (!wait_until(deadline_after(timeout))) {
      throw Timeout("Future::wait: not done after " + std::to_string(timeout.count()) + " ms");
    }
    return value();
  }

  /// Blocks until done (returns true) or until the deadline (returns false).
  bool wait_until(Clock::time_point deadline) const { return state_->wait_until(deadline); }

  /// Returns the value or throws the error of a completed future. Throws InvalidArgument if pending.
  T value() const {
    if (!done()) throw InvalidArgument("Future::value: the future is not done. Call wait() first.");
    if (state_->error) std::rethrow_exception(state_->error);
    if constexpr (!std::is_void_v<T>) return *state_->value;
  }

  /// Returns the error of a failed future; null if pending or successful.
  std::exception_ptr error() const { return done() ? state_->error : nullptr; }

  /// Calls `f(future)` exactly once when this future is done, successful or not, on the promise's executor and in the
  /// CallContext of this call. The returned future completes with the result of `f` (a returned Future is flattened) or
  /// with the exception it throws.
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

  /// Runs `task` when this future is done, like then() but without a result.
  void on_done(Task task) const {
    const auto state = state_;  // the task may destroy this object before on_done returns
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

/// The promise type of a coroutine that returns Future<T>. It starts eagerly in the caller's thread.
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

/// Completes when all futures are done: with their values in order, or with the error of the first failed future in the
/// list.
template <class T>
Future<std::conditional_t<std::is_void_v<T>, void, std::vector<core::FutureValue<T>>>> when_all(
    std::vector<Future<T>> futures) {
  std::vector<core::FutureValue<T>> values;
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

/// As above for futures of different types; a Future<void> contributes a std::monostate.
template <class... T>
Future<std::tuple<core::FutureValue<T>...>> when_all(Future<T>... futures) {
  std::vector<Future<void>> all;
  (all.push_back(futures.then([](const Future<T>& f) { f.value(); })), ...);
  return when_all(std::move(all)).then([futures...](const Future<void>& outcome) {
    outcome.value();
    const auto value_of = []<class U>(const Future<U>& f) -> core::FutureValue<U> {
      if constexpr (std::is_void_v<U>) {
        return {};
      } else {
        return f.value();
      }
    };
    return std::tuple<core::FutureValue<T>...>(value_of(futures)...);
  });
}

}  // namespace hookline
