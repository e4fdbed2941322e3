// Forwards store operations to torch, and converts values and errors.
#include "adapter/libtorch/store.hpp"

#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/gil.hpp"

namespace hookline::libtorch {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

TorchStore::TorchStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<void> owner)
    : store_(std::move(store)), owner_(std::move(owner)) {
  if (!store_) throw InvalidArgument("torch store: store must not be null");
}

void TorchStore::set(const std::string& key, const std::string& value) {
  with_hookline_errors([&] { store_->set(key, bytes_of(value)); });
}

std::string TorchStore::get(const std::string& key) {
  return with_hookline_errors([&] { return text_of(store_->get(key)); });
}

std::int64_t TorchStore::add(const std::string& key, std::int64_t amount) {
  return with_hookline_errors([&] { return store_->add(key, amount); });
}

void TorchStore::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  if (keys.empty()) return;
  with_hookline_errors([&] { store_->wait(keys, timeout); });
}

bool TorchStore::check(const std::vector<std::string>& keys) {
  return with_hookline_errors([&] { return store_->check(keys); });
}

std::string TorchStore::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return with_hookline_errors([&] { return text_of(store_->compareSet(key, bytes_of(expected), bytes_of(desired))); });
}

bool TorchStore::delete_key(const std::string& key) {
  return with_hookline_errors([&] { return store_->deleteKey(key); });
}

std::int64_t TorchStore::num_keys() {
  return with_hookline_errors([&] { return store_->getNumKeys(); });
}

std::vector<std::string> TorchStore::list_keys() {
  return with_hookline_errors([&] { return store_->listKeys(); });
}

void TorchStore::append(const std::string& key, const std::string& value) {
  with_hookline_errors([&] { store_->append(key, bytes_of(value)); });
}

std::vector<std::string> TorchStore::multi_get(const std::vector<std::string>& keys) {
  return with_hookline_errors([&] {
    std::vector<std::string> values;
    for (const Bytes& value : store_->multiGet(keys)) values.push_back(text_of(value));
    return values;
  });
}

void TorchStore::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  if (keys.size() != values.size()) {
    throw InvalidArgument("multi_set: wrong number of values: expected " + std::to_string(keys.size()) +
                          ", one for each key, got " + std::to_string(values.size()));
  }
  with_hookline_errors([&] {
    std::vector<Bytes> all;
    for (const std::string& value : values) all.push_back(bytes_of(value));
    store_->multiSet(keys, all);
  });
}

void TorchStore::queue_push(const std::string& key, const std::string& value) {
  with_hookline_errors([&] { store_->queuePush(key, bytes_of(value)); });
}

std::string TorchStore::queue_pop(const std::string& key, bool block) {
  try {
    return with_hookline_errors([&] { return text_of(store_->queuePop(key, block)); });
  } catch (const Error& e) {
    if (block) throw;
    throw InvalidArgument(std::string("queue_pop: ") + e.what());
  }
}

std::int64_t TorchStore::queue_len(const std::string& key) {
  return with_hookline_errors([&] { return store_->queueLen(key); });
}

bool TorchStore::has_extended_api() const {
  return with_hookline_errors([&] { return store_->hasExtendedApi(); });
}

std::shared_ptr<Store> TorchStore::clone() const {
  return with_hookline_errors([&] { return std::make_shared<TorchStore>(store_->clone(), owner_); });
}

// Returns null for a store that cannot be cloned, such as one implemented in Python; callers then wait on the store
// itself.
std::shared_ptr<Store> TorchStore::clone_for_waiting() const {
  try {
    return clone();
  } catch (const std::exception&) {
    return nullptr;
  }
}

Milliseconds TorchStore::timeout() const { return store_->getTimeout(); }

void TorchStore::set_timeout(Milliseconds timeout) {
  with_hookline_errors([&] { store_->setTimeout(timeout); });
}

std::string TorchStore::host() const {
  auto* const prefix = dynamic_cast<c10d::PrefixStore*>(store_.get());
  const auto inner = prefix ? prefix->getUnderlyingNonPrefixStore() : store_;
  const auto* const tcp = dynamic_cast<const c10d::TCPStore*>(inner.get());
  return tcp ? tcp->getHost() : "";
}

}  // namespace hookline::libtorch
