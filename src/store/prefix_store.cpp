// PrefixStore.
#include <hookline/store/prefix_store.hpp>

#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline {

namespace {

std::string prefixed(const std::string& prefix, const std::string& key) { return prefix + "/" + key; }

std::vector<std::string> prefixed(const std::string& prefix, const std::vector<std::string>& keys) {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (const std::string& key : keys) result.push_back(prefixed(prefix, key));
  return result;
}

}  // namespace

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : prefix_(std::move(prefix)), store_(std::move(store)) {
  if (!store_) throw InvalidArgument(fmt::format("PrefixStore(\"{}\"): store must not be null", prefix_));
}

PrefixStore::~PrefixStore() = default;

std::string PrefixStore::describe() const { return fmt::format("PrefixStore({}, {})", prefix_, store_->describe()); }

void PrefixStore::set(const std::string& key, const std::string& value) { store_->set(prefixed(prefix_, key), value); }

std::string PrefixStore::get(const std::string& key) { return store_->get(prefixed(prefix_, key)); }

std::int64_t PrefixStore::add(const std::string& key, std::int64_t amount) {
  return store_->add(prefixed(prefix_, key), amount);
}

void PrefixStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  store_->wait(prefixed(prefix_, keys), timeout);
}

bool PrefixStore::check(const std::vector<std::string>& keys) { return store_->check(prefixed(prefix_, keys)); }

std::string PrefixStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return store_->compare_set(prefixed(prefix_, key), expected, desired);
}

bool PrefixStore::delete_key(const std::string& key) { return store_->delete_key(prefixed(prefix_, key)); }

std::int64_t PrefixStore::num_keys() { return static_cast<std::int64_t>(list_keys().size()); }

std::vector<std::string> PrefixStore::list_keys() {
  const std::string prefix = prefixed(prefix_, std::string());
  std::vector<std::string> keys;
  for (const std::string& key : store_->list_keys()) {
    if (key.starts_with(prefix)) keys.push_back(key.substr(prefix.size()));
  }
  return keys;
}

void PrefixStore::append(const std::string& key, const std::string& value) {
  store_->append(prefixed(prefix_, key), value);
}

std::vector<std::string> PrefixStore::multi_get(const std::vector<std::string>& keys) {
  return store_->multi_get(prefixed(prefix_, keys));
}

void PrefixStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  store_->multi_set(prefixed(prefix_, keys), values);
}

void PrefixStore::queue_push(const std::string& key, const std::string& value) {
  store_->queue_push(prefixed(prefix_, key), value);
}

std::string PrefixStore::queue_pop(const std::string& key, bool block) {
  return store_->queue_pop(prefixed(prefix_, key), block);
}

std::int64_t PrefixStore::queue_len(const std::string& key) { return store_->queue_len(prefixed(prefix_, key)); }

bool PrefixStore::has_extended_api() const { return store_->has_extended_api(); }

std::shared_ptr<Store> PrefixStore::clone() const { return std::make_shared<PrefixStore>(prefix_, store_->clone()); }

std::shared_ptr<Store> PrefixStore::clone_for_waiting() const {
  auto inner = store_->clone_for_waiting();
  return inner ? std::make_shared<PrefixStore>(prefix_, std::move(inner)) : nullptr;
}

Milliseconds PrefixStore::timeout() const { return store_->timeout(); }

void PrefixStore::set_timeout(Milliseconds timeout) { store_->set_timeout(timeout); }

}  // namespace hookline
