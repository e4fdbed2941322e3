// Store: the interface of key-value stores, which processes share for rendezvous.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// The maximum world size of stores and groups.
inline constexpr int kMaxWorldSize = 1'048'576;

/// A key-value store with text keys and binary values. Operations are atomic across processes unless stated otherwise,
/// and thread-safe. Return values are those of PyTorch's stores. Blocking operations throw Timeout with the key and the
/// store. An operation that an implementation lacks throws Unsupported; append, multi_get, multi_set and barrier have
/// default implementations.
class HOOKLINE_EXPORT Store {
 public:
  explicit Store(Milliseconds timeout = kDefaultStoreTimeout) : timeout_(timeout) {}
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store();

  static constexpr Milliseconds kDefaultStoreTimeout = std::chrono::seconds(300);

  /// Returns the kind and location of the store for error messages: "TCPStore(127.0.0.1:29500)".
  virtual std::string describe() const = 0;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns the value of a key. Blocks up to timeout() until it is set.
  virtual std::string get(const std::string& key) = 0;
  /// Adds to a counter stored as decimal text and returns the sum. A missing counter starts at 0. Throws
  /// InvalidArgument, without a change, if the value is not a number or the sum overflows 64 bits.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// Blocks until each key has a value or a non-empty queue. Returns immediately for no keys.
  virtual void wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  void wait(const std::vector<std::string>& keys) { wait(keys, timeout()); }
  /// True if each key has a value or a non-empty queue.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// Sets `desired` if the value equals `expected`, or if the key is missing and `expected` is empty. Returns the
  /// resulting value, or `expected` if the key is missing and `expected` is not empty.
  virtual std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  /// Deletes the value of a key, but not a queue of that name. Returns true if there was a value.
  virtual bool delete_key(const std::string& key) = 0;
  /// Return the number of keys that have a value, and their names in unspecified order. Queues are not included.
  virtual std::int64_t num_keys() = 0;
  virtual std::vector<std::string> list_keys();
  /// Appends to a value; a missing value counts as empty. The default implementation retries compare_set until it
  /// succeeds. It may expose an empty value to other processes, and lose one of two equal values appended concurrently.
  virtual void append(const std::string& key, const std::string& value);
  /// Returns the values in the order of the keys. Blocks like get().
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys);
  /// Sets several keys, not atomically. Throws InvalidArgument if the numbers of keys and values differ.
  virtual void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);

  /// FIFO queues. With `block`, queue_pop blocks up to timeout() for an element; without, it throws InvalidArgument if
  /// the queue is empty.
  virtual void queue_push(const std::string& key, const std::string& value);
  virtual std::string queue_pop(const std::string& key, bool block = true);
  virtual std::int64_t queue_len(const std::string& key);

  /// Blocks until `world_size` callers have entered the barrier of this name. The barrier is reusable, except after a
  /// Timeout: use another name then. May store values under keys that start with `key`.
  virtual void barrier(const std::string& key, std::int64_t world_size, Milliseconds timeout);

  /// True if the store implements append, multi_get and multi_set natively.
  virtual bool has_extended_api() const { return false; }

  /// Returns a store object on the same values with its own timeout. A clone of a TCPStore has its own connection.
  virtual std::shared_ptr<Store> clone() const;

  /// Returns a clone for a thread that waits long, or null if a wait on this object does not block other threads.
  virtual std::shared_ptr<Store> clone_for_waiting() const { return nullptr; }

  /// Returns the name or address of the host that serves the store; empty if there is none.
  virtual std::string host() const { return {}; }

  /// Returns the timeout of get, queue_pop, multi_get, and of wait without an explicit timeout.
  virtual Milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  virtual void set_timeout(Milliseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }

 private:
  std::atomic<Milliseconds> timeout_;
};

}  // namespace hookline
