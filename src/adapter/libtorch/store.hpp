// Any torch.distributed store as a Hookline store.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <hookline/store/store.hpp>

namespace hookline::libtorch {

/// Converts errors with from_torch_error(); a wait that times out throws Timeout.
class TorchStore final : public Store {
 public:
  /// `owner` is kept alive: the Python object of a store implemented in Python.
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<void> owner = nullptr);

  std::string describe() const override { return "torch store"; }
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
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
  std::string queue_pop(const std::string& key, bool block) override;
  std::int64_t queue_len(const std::string& key) override;
  bool has_extended_api() const override;
  std::shared_ptr<Store> clone() const override;
  std::shared_ptr<Store> clone_for_waiting() const override;
  Milliseconds timeout() const override;
  void set_timeout(Milliseconds timeout) override;
  /// Returns the host of a TCPStore, also behind PrefixStores; empty for other stores.
  std::string host() const override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<void> owner_;
};

}  // namespace hookline::libtorch
