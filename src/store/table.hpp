// Table: the contents of a store, without locking or waiting. Used by MemoryStore, FileStore and the TCP server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hookline::store {

/// Values and queues by key. A key may have both. As in PyTorch, num_keys, list_keys and delete_key ignore queues, but
/// a non-empty queue satisfies check.
class Table {
 public:
  void set(std::string_view key, std::string value);
  /// Returns the value, or null if missing. The pointer is valid until the next change.
  const std::string* find(std::string_view key) const;
  /// Adds to a counter and returns the sum. A missing or empty value counts as 0. Throws InvalidArgument, without a
  /// change, if the value is not a decimal number or the sum overflows 64 bits.
  std::int64_t add(std::string_view key, std::int64_t amount);
  /// True if each key has a value or a non-empty queue.
  template <class Keys>
  bool check(const Keys& keys) const {
    return std::all_of(keys.begin(), keys.end(), [this](std::string_view key) { return has(key); });
  }
  bool has(std::string_view key) const;
  std::string compare_set(std::string_view key, const std::string& expected, const std::string& desired);
  bool delete_key(std::string_view key);
  std::int64_t num_keys() const;
  /// Returns the keys in ascending byte order.
  std::vector<std::string> list_keys() const;
  void append(std::string_view key, std::string_view value);

  void queue_push(std::string_view key, std::string value);
  std::optional<std::string> queue_pop(std::string_view key);
  std::int64_t queue_len(std::string_view key) const;

  using Values = std::map<std::string, std::string, std::less<>>;
  using Queues = std::map<std::string, std::deque<std::string>, std::less<>>;
  const Values& values() const { return values_; }
  /// Returns the non-empty queues.
  const Queues& queues() const { return queues_; }

  /// The estimated memory overhead of a value, a queue or a queue element.
  static constexpr std::size_t kEntryBytes = 128;
  /// Returns the estimated memory of keys, values and queues.
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  Values values_;
  Queues queues_;
};

/// Returns the counter value in `text` plus `amount`, with the errors of Table::add.
std::int64_t counter_sum(std::string_view key, std::string_view text, std::int64_t amount);

}  // namespace hookline::store
