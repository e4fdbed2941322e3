// What a store holds, without locks or waiting: the memory store, the file store's replay and the TCP server share it.
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

/// Values and queues live apart: a key may name one of each. As in PyTorch, queues are not counted or listed as keys
/// and delete_key leaves them alone, but a queue that is not empty satisfies check.
class Table {
 public:
  void set(std::string_view key, std::string value);
  /// Null where there is no such value; the pointer holds until the next change.
  const std::string* find(std::string_view key) const;
  /// Throws InvalidArgument, changing nothing, where the value is no decimal number or the sum leaves 64 bits. A value
  /// that is missing or empty counts as 0.
  std::int64_t add(std::string_view key, std::int64_t amount);
  /// Whether each key has a value or a queue with something in it.
  template <class Keys>
  bool check(const Keys& keys) const {
    return std::all_of(keys.begin(), keys.end(), [this](std::string_view key) { return has(key); });
  }
  bool has(std::string_view key) const;
  std::string compare_set(std::string_view key, const std::string& expected, const std::string& desired);
  bool delete_key(std::string_view key);
  std::int64_t num_keys() const;
  /// In ascending order of their bytes.
  std::vector<std::string> list_keys() const;
  void append(std::string_view key, std::string_view value);

  void queue_push(std::string_view key, std::string value);
  std::optional<std::string> queue_pop(std::string_view key);
  std::int64_t queue_len(std::string_view key) const;

  using Values = std::map<std::string, std::string, std::less<>>;
  using Queues = std::map<std::string, std::deque<std::string>, std::less<>>;
  const Values& values() const { return values_; }
  /// Only queues that are not empty.
  const Queues& queues() const { return queues_; }

  /// An estimate of the memory that one value, queue or element of a queue needs beside its bytes.
  static constexpr std::size_t kEntryBytes = 128;
  /// The memory that keys, values and queues need, by that estimate.
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  Values values_;
  Queues queues_;
};

/// The counter that `text` stands for and `amount` added to it: the arithmetic of Table::add alone.
std::int64_t counter_sum(std::string_view key, std::string_view text, std::int64_t amount);

}  // namespace hookline::store
