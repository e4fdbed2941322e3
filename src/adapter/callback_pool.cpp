// Starts a thread for a task if none is idle; an idle thread ends after 10 s.
#include "adapter/callback_pool.hpp"

#include <atomic>
#include <thread>
#include <utility>

#include <pthread.h>

namespace hookline::adapter {
namespace {

constexpr std::chrono::seconds kIdleTime{10};

std::atomic<CallbackPool*> current_pool = nullptr;

void replace_pool() { current_pool = new CallbackPool; }

}  // namespace

CallbackPool& CallbackPool::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    replace_pool();
    pthread_atfork(nullptr, nullptr, &replace_pool);  // a child has no worker threads, and may inherit a locked mutex
  });
  return *current_pool.load();
}

void CallbackPool::post(Task task) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  tasks_.push_back(std::move(task));
  if (tasks_.size() <= idle_threads_) {
    wake_.notify_one();
  } else {
    std::thread([this] { run_worker(); }).detach();
    ++idle_threads_;  // counts as idle until it takes the task; tasks_ already includes that task
  }
}

void CallbackPool::run_worker() {
  pthread_setname_np(pthread_self(), "hookline-callbk");
  std::unique_lock lock(mutex_);
  while (true) {
    if (!wake_.wait_for(lock, kIdleTime, [&] { return !tasks_.empty(); })) break;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_threads_;
    ++running_tasks_;
    lock.unlock();
    task();
    task = Task();
    lock.lock();
    --running_tasks_;
    ++idle_threads_;
    task_ended_.notify_all();
  }
  --idle_threads_;
}

void CallbackPool::close(Milliseconds timeout) {
  std::deque<Task> dropped;  // destroyed without the lock, since task destructors may post
  std::unique_lock lock(mutex_);
  closed_ = true;
  std::swap(dropped, tasks_);
  task_ended_.wait_until(lock, deadline_after(timeout), [&] { return running_tasks_ == 0; });
}

}  // namespace hookline::adapter
