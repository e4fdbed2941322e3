// A small key-value table that processes share to find each other: the seam that every store implements.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// The largest world size that stores and groups accept.
inline constexpr int kMaxWorldSize = 1'048'576;

/// Keys are text, values any bytes. Every operation is atomic across the processes that share the store, and may be
/// called from several threads at once. What waits gives up after a timeout with a Timeout error that names key, store
/// and time. An operation that an implementation lacks throws Unsupported naming both; append, multi_get, multi_set and
/// barrier are built from the others unless overridden. What each returns is what PyTorch's stores return.
class HOOKLINE_EXPORT Store {
 public:
  explicit Store(Milliseconds timeout = kDefaultStoreTimeout) : timeout_(timeout) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store();

  static constexpr Milliseconds kDefaultStoreTimeout = std::chrono::seconds(300);

  /// What error messages call this store: its kind and where it is, as in "TCPStore(127.0.0.1:29500)".
  virtual std::string describe() const = 0;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value of a key, waiting up to timeout() for it to be set.
  virtual std::string get(const std::string& key) = 0;
  /// Adds to a counter kept as decimal text, which starts at 0, and returns the sum. InvalidArgument, with nothing
  /// changed, where the value is no number or the sum leaves 64 bits.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// Waits until each key has a value or a queue that is not empty; for no keys, not at all.
  virtual void wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  void wait(const std::vector<std::string>& keys) { wait(keys, timeout()); }
  /// Whether each key has a value, or a queue that is not empty, now.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// Sets `desired` where the value is `expected`, or where the key is missing and `expected` is empty. Returns the
  /// value afterwards; for a missing key and another `expected`, that `expected`.
  virtual std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  /// Whether there was such a value. A queue of that name stays.
  virtual bool delete_key(const std::string& key) = 0;
  /// How many keys have a value, and which, in no particular order; queues are not among them.
  virtual std::int64_t num_keys() = 0;
  virtual std::vector<std::string> list_keys();
  /// Appends to a value; a missing one starts empty. The default repeats compare_set until no other process has changed
  /// the value in between. Others may then see an empty value first, and of equal values that two processes append at
  /// the same time one may be lost.
  virtual void append(const std::string& key, const std::string& value);
  /// The values in the order of the keys, waiting for them as get does.
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys);
  /// InvalidArgument where there are more or fewer values than keys. Not atomic: others may see some of them first.
  virtual void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);

  /// A queue under a key, first in first out. A pop that may block waits up to timeout() for an element; one that may
  /// not throws InvalidArgument where the queue is empty.
  virtual void queue_push(const std::string& key, const std::string& value);
  virtual std::string queue_pop(const std::string& key, bool block = true);
  virtual std::int64_t queue_len(const std::string& key);

  /// Returns when `world_size` callers have come to the barrier of this name; it can be used again at once.
  /// After a Timeout it is out of step: use another name. It may keep values under names that begin with `key`.
  virtual void barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout);

  /// True if append, multi_get and multi_set are implemented by the store itself, not by the defaults above.
  virtual bool has_extended_api() const { return false; }

  /// Returns another store object on the same values, with a timeout of its own; a TCPStore's has its own connection.
  virtual std::shared_ptr<Store> clone() const;

  /// Another way to the same values, for a thread that waits long; null where such a wait holds nobody up.
  virtual std::shared_ptr<Store> clone_for_waiting() const { return nullptr; }

  /// A name or number of the host that keeps it; empty where no host does.
  virtual std::string host() const { return {}; }

  /// How long get, and wait without a time of its own, will wait.
  virtual Milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  virtual void set_timeout(Milliseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }

 private:
  std::atomic<Milliseconds> timeout_;
};

}  // namespace hookline
