// FileStore: operations on a log file.
#include <hookline/store/file_store.hpp>

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "core/fork.hpp"
#include "store/log_file.hpp"
#include "store/store_error.hpp"

namespace hookline {

using store::LogFile;
using store::RecordKind;
using store::Table;

namespace {

/// The minimum timeout for the file lock, also for non-blocking operations.
constexpr Milliseconds kMinLockTimeout{1000};
/// The polling interval of waits.
constexpr Milliseconds kMinPollInterval{1};
constexpr Milliseconds kMaxPollInterval{8};

}  // namespace

struct FileStore::Impl {
  explicit Impl(const std::string& path) : log(path) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Runs when the store and all of its clones are destroyed.
  ~Impl();

  std::mutex mutex;
  LogFile log;
  int world_size = -1;
  const std::uint64_t fork_generation = core::fork_generation();

  template <class F>
  auto with_lock(LogFile::Lock::Mode mode, Milliseconds timeout, F f) {
    const auto deadline = deadline_after(std::max(timeout, kMinLockTimeout));
    while (true) {
      try {
        const std::lock_guard guard(mutex);
        LogFile::Lock lock(log, mode, std::min(deadline, deadline_after(kInterruptPeriod)));
        return f(lock);
      } catch (const Timeout&) {
        if (Clock::now() >= deadline) throw;
      }
      check_interrupt();  // runs arbitrary code, so not under the mutex
    }
  }

  template <class F>
  auto read(Milliseconds timeout, F f) {
    return with_lock(LogFile::Lock::Mode::shared, timeout,
                     [&](const LogFile::Lock& lock) { return f(lock.contents().table); });
  }

  template <class F>
  auto write(Milliseconds timeout, F f) {
    return with_lock(LogFile::Lock::Mode::exclusive, timeout,
                     [&](LogFile::Lock& lock) { return f(lock, lock.contents().table); });
  }

  /// Polls until `poll()` returns a value; nullopt at the timeout. inotify is not used: removing a watch waits for
  /// kernel workers, which took tens of seconds beside busy processes, and it does not see changes from other hosts.
  template <class F>
  auto poll_until(Milliseconds timeout, F poll) -> decltype(poll()) {
    const auto deadline = deadline_after(timeout);
    for (Milliseconds pause = kMinPollInterval;; pause = std::min(pause * 2, kMaxPollInterval)) {
      if (auto result = poll()) return result;
      const Milliseconds left = time_left(deadline);
      if (left == Milliseconds(0)) return std::nullopt;
      check_interrupt();
      std::this_thread::sleep_for(std::min(pause, left));
    }
  }
};

FileStore::Impl::~Impl() {
  if (world_size <= 0) return;
  if (fork_generation != core::fork_generation()) return;  // the parent has opened the store and closes it
  const InterruptScope no_interrupts(nullptr);
  try {
    write(Milliseconds(0), [this](LogFile::Lock& lock, const Table&) {
      lock.write({RecordKind::closed});
      const store::Contents& contents = lock.contents();
      if (contents.opened >= world_size && contents.opened == contents.closed) lock.unlink_path();
    });
  } catch (const Error&) {
    // The file remains, as after a killed process; a destructor cannot report the error.
  }
}

FileStore::FileStore(const std::string& path, int world_size, Milliseconds timeout) : Store(timeout) {
  if (world_size != -1) store::check_world_size_range(fmt::format("FileStore({})", path), "world_size", world_size);
  const auto mode = world_size > 0 ? LogFile::Lock::Mode::exclusive : LogFile::Lock::Mode::shared;
  const auto register_store = [&](LogFile::Lock& lock) {
    if (!lock.is_at_path()) return false;  // the last store of the previous run has just removed it
    if (world_size > 0) lock.write({RecordKind::opened});
    return true;
  };
  do {
    impl_ = std::make_shared<Impl>(path);
  } while (!impl_->with_lock(mode, timeout, register_store));
  impl_->world_size = world_size;
}

FileStore::FileStore(std::shared_ptr<Impl> impl, Milliseconds timeout) : Store(timeout), impl_(std::move(impl)) {}

FileStore::~FileStore() = default;

std::shared_ptr<Store> FileStore::clone() const { return std::shared_ptr<FileStore>(new FileStore(impl_, timeout())); }

const std::string& FileStore::path() const { return impl_->log.path(); }

std::string FileStore::describe() const { return fmt::format("FileStore({})", path()); }

void FileStore::set(const std::string& key, const std::string& value) {
  impl_->write(timeout(), [&](LogFile::Lock& lock, const Table&) { lock.write({RecordKind::set, key, value}); });
}

std::string FileStore::get(const std::string& key) {
  const Milliseconds limit = timeout();
  auto value = impl_->poll_until(limit, [&] {
    return impl_->read(limit, [&](const Table& table) {
      const std::string* found = table.find(key);
      return found ? std::optional(*found) : std::nullopt;
    });
  });
  if (!value) store::throw_timeout(*this, "get", key, limit);
  return std::move(*value);
}

std::int64_t FileStore::add(const std::string& key, std::int64_t amount) {
  return impl_->write(timeout(), [&](LogFile::Lock& lock, const Table& table) {
    const std::string* value = table.find(key);
    const std::int64_t sum = store::counter_sum(key, value ? *value : std::string_view(), amount);
    lock.write({RecordKind::set, key, std::to_string(sum)});
    return sum;
  });
}

void FileStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  const auto found = impl_->poll_until(timeout, [&] {
    const bool all = impl_->read(timeout, [&](const Table& table) { return table.check(keys); });
    return all ? std::optional(true) : std::nullopt;
  });
  if (!found) store::throw_timeout(*this, "wait", store::describe_missing_keys(*this, keys), timeout);
}

bool FileStore::check(const std::vector<std::string>& keys) {
  return impl_->read(timeout(), [&](const Table& table) { return table.check(keys); });
}

std::string FileStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return impl_->write(timeout(), [&](LogFile::Lock& lock, const Table& table) {
    const std::string* value = table.find(key);
    if (value ? *value != expected : !expected.empty()) return value ? *value : expected;
    lock.write({RecordKind::set, key, desired});
    return desired;
  });
}

bool FileStore::delete_key(const std::string& key) {
  return impl_->write(timeout(), [&](LogFile::Lock& lock, const Table& table) {
    if (!table.find(key)) return false;
    lock.write({RecordKind::erase, key});
    return true;
  });
}

std::int64_t FileStore::num_keys() {
  return impl_->read(timeout(), [](const Table& table) { return table.num_keys(); });
}

std::vector<std::string> FileStore::list_keys() {
  return impl_->read(timeout(), [](const Table& table) { return table.list_keys(); });
}

void FileStore::append(const std::string& key, const std::string& value) {
  impl_->write(timeout(), [&](LogFile::Lock& lock, const Table&) { lock.write({RecordKind::append, key, value}); });
}

void FileStore::queue_push(const std::string& key, const std::string& value) {
  impl_->write(timeout(), [&](LogFile::Lock& lock, const Table&) { lock.write({RecordKind::push, key, value}); });
}

std::string FileStore::queue_pop(const std::string& key, bool block) {
  const Milliseconds limit = block ? timeout() : Milliseconds(0);
  auto value = impl_->poll_until(limit, [&]() -> std::optional<std::string> {
    if (impl_->read(limit, [&](const Table& table) { return table.queue_len(key); }) == 0) return std::nullopt;
    return impl_->write(limit, [&](LogFile::Lock& lock, const Table& table) -> std::optional<std::string> {
      const auto at = table.queues().find(key);
      if (at == table.queues().end()) return std::nullopt;
      std::string front = at->second.front();
      lock.write({RecordKind::pop, key});
      return front;
    });
  });
  if (value) return std::move(*value);
  if (!block) store::throw_queue_empty(*this, key);
  store::throw_timeout(*this, "queue_pop", key, limit);
}

std::int64_t FileStore::queue_len(const std::string& key) {
  return impl_->read(timeout(), [&](const Table& table) { return table.queue_len(key); });
}

}  // namespace hookline
