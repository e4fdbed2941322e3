// MemoryStore: a table with a mutex and a condition variable.
#include <hookline/store/memory_store.hpp>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "store/store_error.hpp"
#include "store/table.hpp"

namespace hookline {

struct MemoryStore::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  store::Table table;

  template <class F>
  auto read(F f) {
    const std::lock_guard lock(mutex);
    return f(std::as_const(table));
  }

  template <class F>
  auto write(F f) {
    const std::lock_guard lock(mutex);
    changed.notify_all();
    return f(table);
  }

  /// Blocks until `ready(table)` is true, then calls `f` on the table. Returns false at the timeout.
  template <class Ready, class F>
  bool wait_until(Milliseconds timeout, Ready ready, F f) {
    const auto end = deadline_after(timeout);
    while (true) {
      {
        std::unique_lock lock(mutex);
        const auto next_check = std::min(end, deadline_after(kInterruptPeriod));
        if (changed.wait_until(lock, next_check, [&] { return ready(std::as_const(table)); })) {
          f(table);
          return true;
        }
      }
      if (Clock::now() >= end) return false;
      check_interrupt();  // runs arbitrary code, so not under the lock
    }
  }
};

MemoryStore::MemoryStore(Milliseconds timeout) : Store(timeout), shared_(std::make_shared<Shared>()) {}

MemoryStore::MemoryStore(std::shared_ptr<Shared> shared, Milliseconds timeout)
    : Store(timeout), shared_(std::move(shared)) {}

MemoryStore::~MemoryStore() = default;

std::string MemoryStore::describe() const { return "MemoryStore"; }

std::shared_ptr<Store> MemoryStore::clone() const {
  return std::shared_ptr<MemoryStore>(new MemoryStore(shared_, timeout()));
}

void MemoryStore::set(const std::string& key, const std::string& value) {
  shared_->write([&](store::Table& table) { table.set(key, value); });
}

std::string MemoryStore::get(const std::string& key) {
  std::string value;
  const Milliseconds limit = timeout();
  const bool found = shared_->wait_until(
      limit, [&](const store::Table& table) { return table.find(key) != nullptr; },
      [&](const store::Table& table) { value = *table.find(key); });
  if (!found) store::throw_timeout(*this, "get", key, limit);
  return value;
}

std::int64_t MemoryStore::add(const std::string& key, std::int64_t amount) {
  return shared_->write([&](store::Table& table) { return table.add(key, amount); });
}

void MemoryStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  const bool found = shared_->wait_until(
      timeout, [&](const store::Table& table) { return table.check(keys); }, [](const store::Table&) {});
  if (found) return;
  store::throw_timeout(*this, "wait", store::describe_missing_keys(*this, keys), timeout);
}

bool MemoryStore::check(const std::vector<std::string>& keys) {
  return shared_->read([&](const store::Table& table) { return table.check(keys); });
}

std::string MemoryStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return shared_->write([&](store::Table& table) { return table.compare_set(key, expected, desired); });
}

bool MemoryStore::delete_key(const std::string& key) {
  return shared_->write([&](store::Table& table) { return table.delete_key(key); });
}

std::int64_t MemoryStore::num_keys() {
  return shared_->read([](const store::Table& table) { return table.num_keys(); });
}

std::vector<std::string> MemoryStore::list_keys() {
  return shared_->read([](const store::Table& table) { return table.list_keys(); });
}

void MemoryStore::append(const std::string& key, const std::string& value) {
  shared_->write([&](store::Table& table) { table.append(key, value); });
}

void MemoryStore::queue_push(const std::string& key, const std::string& value) {
  shared_->write([&](store::Table& table) { table.queue_push(key, value); });
}

std::string MemoryStore::queue_pop(const std::string& key, bool block) {
  std::string value;
  const Milliseconds limit = block ? timeout() : Milliseconds(0);
  const bool found = shared_->wait_until(
      limit, [&](const store::Table& table) { return table.queue_len(key) > 0; },
      [&](store::Table& table) { value = std::move(*table.queue_pop(key)); });
  if (found) return value;
  if (!block) store::throw_queue_empty(*this, key);
  store::throw_timeout(*this, "queue_pop", key, limit);
}

std::int64_t MemoryStore::queue_len(const std::string& key) {
  return shared_->read([&](const store::Table& table) { return table.queue_len(key); });
}

}  // namespace hookline
