// OpWork: waiting drives the operation; completion runs its callbacks.
#include "backend/driven_work.hpp"

#include <algorithm>

namespace hookline::backend {

DrivenWork::DrivenWork(Milliseconds timeout, Collective&& collective)
    : collective_(std::move(collective)), deadline_(started_ + std::clamp(timeout, Milliseconds(0), kLongestTimeout)) {}

bool DrivenWork::is_completed() {
  if (over()) return true;
  refuse_in_forked_child("is_completed");
  look();
  return over();
}

void DrivenWork::wait(std::optional<Milliseconds> timeout) {
  if (!over()) {
    refuse_in_forked_child("wait");
    if (timeout) shorten(deadline_after(*timeout));
    drive();
  }
  if (error_) std::rethrow_exception(error_);
}

Future<std::vector<Tensor>> DrivenWork::get_future() {
  refuse_in_forked_child("get_future");  // even if done: the worker thread does not exist in a forked child
  Promise<std::vector<Tensor>> promise;
  Future<std::vector<Tensor>> future = promise.get_future();
  Task task([promise = std::move(promise), work = shared_from_this()]() mutable {
    if (const std::exception_ptr error = work->exception()) {
      promise.set_error(error);
    } else {
      promise.set_value(work->result());
    }
  });
  if (attach(tasks_, task)) {
    hurry();
  } else {
    hand_over(std::move(task));
  }
  return future;
}

void DrivenWork::when_over(Task task, bool hasten) {
  if (over() || !attach(quick_tasks_, task)) {
    task();
  } else if (hasten) {
    hurry();
  }
}

void DrivenWork::shorten(Clock::time_point deadline) noexcept {
  Clock::time_point before = deadline_.load(std::memory_order_relaxed);
  while (deadline < before && !deadline_.compare_exchange_weak(before, deadline, std::memory_order_relaxed)) {
  }
}

bool DrivenWork::attach(std::vector<Task>& tasks, Task& task) {
  const std::lock_guard lock(mutex_);
  attached_.store(true, std::memory_order_seq_cst);
  if (over_.load(std::memory_order_seq_cst)) return false;
  tasks.push_back(std::move(task));
  return true;
}

void DrivenWork::complete(std::exception_ptr error) {
  error_ = std::move(error);
  finished_ = Clock::now();
  over_.store(true, std::memory_order_seq_cst);
  if (attached_.load(std::memory_order_seq_cst)) {
    std::vector<Task> tasks;
    std::vector<Task> quick_tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
      quick_tasks.swap(quick_tasks_);
    }
    for (Task& task : quick_tasks) task();
    for (Task& task : tasks) hand_over(std::move(task));
  }
  announce();
}

}  // namespace hookline::backend
