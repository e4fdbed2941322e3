// Table: operations on the contents of a store.
#include "store/table.hpp"

#include <charconv>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::store {

namespace {

constexpr std::size_t kShownValueBytes = 32;

}  // namespace

std::int64_t counter_sum(std::string_view key, std::string_view text, std::int64_t amount) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size())) {
    throw InvalidArgument(
        fmt::format("add(\"{}\", {}): the value {:?} is not a number. Delete the key or use another one.", key, amount,
                    text.substr(0, kShownValueBytes)));
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(count, amount, &sum)) {
    throw InvalidArgument(
        fmt::format("add(\"{}\", {}): the counter is {}, and the sum overflows 64 bits", key, amount, count));
  }
  return sum;
}

void Table::set(std::string_view key, std::string value) {
  const std::size_t size = value.size();
  if (const auto at = values_.find(key); at != values_.end()) {
    bytes_ -= at->second.size();
    at->second = std::move(value);
    bytes_ += size;
  } else {
    values_.emplace(key, std::move(value));
    bytes_ += kEntryBytes + key.size() + size;
  }
}

const std::string* Table::find(std::string_view key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

std::int64_t Table::add(std::string_view key, std::int64_t amount) {
  const std::string* value = find(key);
  const std::int64_t sum = counter_sum(key, value ? *value : std::string_view(), amount);
  set(key, std::to_string(sum));
  return sum;
}

bool Table::has(std::string_view key) const { return values_.contains(key) || queues_.contains(key); }

std::string Table::compare_set(std::string_view key, const std::string& expected, const std::string& desired) {
  const std::string* value = find(key);
  if (value ? *value != expected : !expected.empty()) return value ? *value : expected;
  set(key, desired);
  return desired;
}

bool Table::delete_key(std::string_view key) {
  const auto at = values_.find(key);
  if (at == values_.end()) return false;
  bytes_ -= kEntryBytes + at->first.size() + at->second.size();
  values_.erase(at);
  return true;
}

std::int64_t Table::num_keys() const { return static_cast<std::int64_t>(values_.size()); }

std::vector<std::string> Table::list_keys() const {
  std::vector<std::string> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

void Table::append(std::string_view key, std::string_view value) {
  if (const auto at = values_.find(key); at != values_.end()) {
    at->second.append(value);
    bytes_ += value.size();
  } else {
    values_.emplace(key, value);
    bytes_ += kEntryBytes + key.size() + value.size();
  }
}

void Table::queue_push(std::string_view key, std::string value) {
  const std::size_t size = value.size();
  if (const auto at = queues_.find(key); at != queues_.end()) {
    at->second.push_back(std::move(value));
  } else {  // exception safety: bad_alloc must not leave an empty queue behind
    std::deque<std::string> queue;
    queue.push_back(std::move(value));
    queues_.emplace(key, std::move(queue));
    bytes_ += kEntryBytes + key.size();
  }
  bytes_ += kEntryBytes + size;
}

std::optional<std::string> Table::queue_pop(std::string_view key) {
  const auto at = queues_.find(key);
  if (at == queues_.end()) return std::nullopt;
  std::string value = std::move(at->second.front());
  at->second.pop_front();
  bytes_ -= kEntryBytes + value.size();
  if (at->second.empty()) {
    bytes_ -= kEntryBytes + at->first.size();
    queues_.erase(at);
  }
  return value;
}

std::int64_t Table::queue_len(std::string_view key) const {
  const auto at = queues_.find(key);
  return at == queues_.end() ? 0 : static_cast<std::int64_t>(at->second.size());
}

}  // namespace hookline::store
