// Starts a thread for a task if none is idle; an idle thread ends after 10 s.
#include "adapter/callback_pool.hpp"

#include <atomic>
#include <thread>
#include <utility>

#include <pthread.h>

namespace hookline::adapter {
namespace {

constexpr std::chrono::seconds kIdleTime{10};

std::atomic<CallbackPool*> current = nullptr;

void renew() { current = new CallbackPool; }

}  // namespace

CallbackPool& CallbackPool::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    renew();
    pthread_atfork(nullptr, nullptr, &renew);  // a child has no worker threads, and may inherit a locked mutex
  });
  return *current.load();
}

void CallbackPool::post(Task task) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  tasks_.push_back(std::move(task));
  if (tasks_.size() <= idle_) {
    wake_.notify_one();
  } else {
    std::thread([this] { serve(); }).detach();
    ++idle_;  // counts as idle until it takes the task; tasks_ already includes that task
  }
}

void CallbackPool::serve() {
  pthread_setname_np(pthread_self(), "hookline-callbk");
  std::unique_lock lock(mutex_);
  while (true) {
    if (!wake_.wait_for(lock, kIdleTime, [&] { return !tasks_.empty(); })) break;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    ++running_;
    lock.unlock();
    task();
    task = Task();
    lock.lock();
    --running_;
    ++idle_;
    ended_.notify_all();
  }
  --idle_;
}

void CallbackPool::close(Milliseconds timeout) {
  std::deque<Task> dropped;  // destroyed without the lock, since task destructors may post
  std::unique_lock lock(mutex_);
  closed_ = true;
  std::swap(dropped, tasks_);
  ended_.wait_until(lock, deadline_after(timeout), [&] { return running_ == 0; });
}

}  // namespace hookline::adapter
