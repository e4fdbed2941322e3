// Waiting for an operation drives it; its end runs what was attached to it.
#include "backend/embedded/pending.hpp"

#include <algorithm>

#include "backend/embedded/engine.hpp"

namespace hookline::embedded {

Pending::Pending(std::shared_ptr<Engine> engine, std::uint64_t number, Milliseconds timeout, Collective&& collective)
    : engine_(std::move(engine)),
      collective_(std::move(collective)),
      number_(number),
      deadline_(started_ + std::clamp(timeout, Milliseconds(0), kLongestTimeout)) {}

bool Pending::is_completed() {
  if (over()) return true;
  engine_->refuse_in_forked_child("is_completed");
  if (!engine_->drive()) engine_->look_around();
  return over();
}

void Pending::wait(std::optional<Milliseconds> timeout) {
  if (!over()) {
    if (timeout) shorten(deadline_after(*timeout));
    engine_->wait_for(*this);
  }
  if (error_) std::rethrow_exception(error_);
}

Future<std::vector<Tensor>> Pending::get_future() {
  Promise<std::vector<Tensor>> promise;
  Future<std::vector<Tensor>> future = promise.get_future();
  on_done([promise = std::move(promise), work = shared_from_this()]() mutable {
    if (const std::exception_ptr error = work->exception()) {
      promise.set_error(error);
    } else {
      promise.set_value(work->result());
    }
  });
  return future;
}

void Pending::shorten(Clock::time_point deadline) noexcept {
  Clock::time_point before = deadline_.load(std::memory_order_relaxed);
  while (deadline < before && !deadline_.compare_exchange_weak(before, deadline, std::memory_order_relaxed)) {
  }
}

bool Pending::attach(std::vector<Task>& tasks, Task& task) {
  const std::lock_guard lock(mutex_);
  attached_.store(true, std::memory_order_seq_cst);
  if (over_.load(std::memory_order_seq_cst)) return false;
  tasks.push_back(std::move(task));
  return true;
}

void Pending::on_done(Task task) {
  if (attach(tasks_, task)) {
    engine_->wake_progress_thread();  // nobody may ever wait for it
  } else {
    engine_->post(std::move(task));
  }
}

void Pending::when_over(Task task, bool hasten) {
  if (over() || !attach(quick_tasks_, task)) {
    task();
  } else if (hasten) {
    engine_->wake_progress_thread();
  }
}

void Pending::complete(std::exception_ptr error) {
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
    for (Task& task : tasks) engine_->post(std::move(task));
  }
  engine_->announce();
}

}  // namespace hookline::embedded
