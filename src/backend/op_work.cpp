// OpWork: waiting drives the operation; completion runs its callbacks.
#include "backend/op_work.hpp"

#include <algorithm>

namespace hookline::backend {

OpWork::OpWork(Milliseconds timeout, Operation&& operation)
    : operation_(std::move(operation)), deadline_(started_ + std::clamp(timeout, Milliseconds(0), kMaxTimeout)) {}

bool OpWork::is_completed() {
  if (done()) return true;
  refuse_in_forked_child("is_completed");
  poll();
  return done();
}

void OpWork::wait(std::optional<Milliseconds> timeout) {
  if (!done()) {
    refuse_in_forked_child("wait");
    if (timeout) tighten_deadline(deadline_after(*timeout));
    drive();
  }
  if (error_) std::rethrow_exception(error_);
}

Future<std::vector<Tensor>> OpWork::get_future() {
  refuse_in_forked_child("get_future");  // even if done: the worker thread does not exist in a forked child
  Promise<std::vector<Tensor>> promise;
  Future<std::vector<Tensor>> future = promise.get_future();
  Task callback([promise = std::move(promise), work = shared_from_this()]() mutable {
    if (const std::exception_ptr error = work->exception()) {
      promise.set_error(error);
    } else {
      promise.set_value(work->result());
    }
  });
  if (add_callback(worker_callbacks_, callback)) {
    expedite();
  } else {
    post_to_worker(std::move(callback));
  }
  return future;
}

void OpWork::on_complete(Task callback, Urgency urgency) {
  if (done() || !add_callback(inline_callbacks_, callback)) {
    callback();
  } else if (urgency == Urgency::high) {
    expedite();
  }
}

void OpWork::tighten_deadline(Clock::time_point deadline) noexcept {
  Clock::time_point current = deadline_.load(std::memory_order_relaxed);
  while (deadline < current && !deadline_.compare_exchange_weak(current, deadline, std::memory_order_relaxed)) {
  }
}

bool OpWork::add_callback(std::vector<Task>& callbacks, Task& callback) {
  const std::lock_guard lock(mutex_);
  has_callbacks_.store(true, std::memory_order_seq_cst);
  if (done_.load(std::memory_order_seq_cst)) return false;
  callbacks.push_back(std::move(callback));
  return true;
}

void OpWork::complete(std::exception_ptr error) {
  error_ = std::move(error);
  finished_ = Clock::now();
  done_.store(true, std::memory_order_seq_cst);
  if (has_callbacks_.load(std::memory_order_seq_cst)) {
    std::vector<Task> worker_callbacks;
    std::vector<Task> inline_callbacks;
    {
      const std::lock_guard lock(mutex_);
      worker_callbacks.swap(worker_callbacks_);
      inline_callbacks.swap(inline_callbacks_);
    }
    for (Task& task : inline_callbacks) task();
    for (Task& task : worker_callbacks) post_to_worker(std::move(task));
  }
  notify();
}

}  // namespace hookline::backend
