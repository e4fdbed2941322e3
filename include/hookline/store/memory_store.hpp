// MemoryStore: a store within one process, for ranks that are threads, and for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hookline/store/store.hpp>

namespace hookline {

/// An in-memory store. The values live as long as the object and its clones.
class HOOKLINE_EXPORT MemoryStore final : public Store {
 public:
  explicit MemoryStore(Milliseconds timeout = kDefaultStoreTimeout);
  ~MemoryStore() override;

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
  void queue_push(const std::string& key, const std::string& value) override;
  std::string queue_pop(const std::string& key, bool block = true) override;
  std::int64_t queue_len(const std::string& key) override;
  bool has_extended_api() const override { return true; }
  std::shared_ptr<Store> clone() const override;

 private:
  struct Shared;
  MemoryStore(std::shared_ptr<Shared> shared, Milliseconds timeout);
  std::shared_ptr<Shared> shared_;
};

}  // namespace hookline
