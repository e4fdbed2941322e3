// PrefixStore: adds a prefix to all keys, so that several users can share a store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hookline/store/store.hpp>

namespace hookline {

/// Maps the key "k" to "prefix/k" in the underlying store, as in PyTorch. Counts and lists only keys with the prefix.
/// Shares the timeout of the underlying store. Its barrier uses counter keys instead of the underlying store's barrier,
/// and interoperates with PyTorch's PrefixStore.
class HOOKLINE_EXPORT PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);
  ~PrefixStore() override;

  const std::string& prefix() const { return prefix_; }
  const std::shared_ptr<Store>& underlying_store() const { return store_; }

  std::string describe() const override;
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  using Store::wait;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  bool check(const std::vector<std::string>& keys) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  std::int64_t num_keys() override;
  std::vector<std::string> list_keys() override;
  void append(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  void queue_push(const std::string& key, const std::string& value) override;
  std::string queue_pop(const std::string& key, bool block = true) override;
  std::int64_t queue_len(const std::string& key) override;
  bool has_extended_api() const override;
  std::shared_ptr<Store> clone() const override;
  std::shared_ptr<Store> clone_for_waiting() const override;
  std::string host() const override { return store_->host(); }
  Milliseconds timeout() const override;
  void set_timeout(Milliseconds timeout) override;

 private:
  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace hookline
