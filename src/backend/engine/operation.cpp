// Waiting for an operation drives it; its end runs what was attached to it.
#include "backend/engine/operation.hpp"

#include <algorithm>

#include "backend/engine/station.hpp"

namespace hookline::engine {

Operation::Operation(std::shared_ptr<Station> station, Milliseconds timeout, Collective&& collective)
    : station_(std::move(station)),
      collective_(std::move(collective)),
      deadline_(started_ + std::clamp(timeout, Milliseconds(0), kLongestTimeout)) {}

bool Operation::is_completed() {
  if (over()) return true;
  station_->refuse_in_forked_child("is_completed");
  hurry();
  return over();
}

void Operation::wait(std::optional<Milliseconds> timeout) {
  if (!over()) {
    station_->refuse_in_forked_child("wait");
    if (timeout) {
      const Clock::time_point sooner = deadline_after(*timeout);
      Clock::time_point before = deadline();
      while (sooner < before && !deadline_.compare_exchange_weak(before, sooner, std::memory_order_relaxed)) {
      }
    }
    drive();
  }
  if (error_) std::rethrow_exception(error_);
}

Future<std::vector<Tensor>> Operation::get_future() {
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
    station_->post(std::move(task));
  }
  return future;
}

void Operation::when_over(Task task, bool hasten) {
  if (over() || !attach(quick_tasks_, task)) {
    task();
  } else if (hasten) {
    hurry();
  }
}

bool Operation::attach(std::vector<Task>& tasks, Task& task) {
  const std::lock_guard lock(mutex_);
  if (over()) return false;
  tasks.push_back(std::move(task));
  return true;
}

void Operation::complete(std::exception_ptr error) {
  std::vector<Task> tasks;
  std::vector<Task> quick_tasks;
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = Clock::now();
    over_.store(true, std::memory_order_release);
    tasks.swap(tasks_);
    quick_tasks.swap(quick_tasks_);
  }
  for (Task& task : quick_tasks) task();
  for (Task& task : tasks) station_->post(std::move(task));
}

}  // namespace hookline::engine
