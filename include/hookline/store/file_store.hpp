// FileStore: a store in a file that the processes of one host share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hookline/store/store.hpp>

namespace hookline {

/// A store in a log file. Processes, threads and FileStore objects may share the file. Operations are atomic even if a
/// process is killed; the kernel then releases its lock. Keys and values have at most 256 MiB each. In a directory that
/// other users can write to, the file must belong to the caller's user, and symbolic links are not followed.
///
/// With a world size, the last of at least `world_size` stores to be destroyed removes the file, so that the next run
/// can reuse its path. A store that is open keeps working after its file is removed.
class HOOKLINE_EXPORT FileStore final : public Store {
 public:
  /// Opens the file, or creates it with mode 0600. `world_size` -1 means unknown. Throws ResourceError if a system call
  /// fails or the file is corrupt, and InvalidArgument if it is not a store file or `world_size` is out of range.
  explicit FileStore(const std::string& path, int world_size = -1, Milliseconds timeout = kDefaultStoreTimeout);
  ~FileStore() override;

  const std::string& path() const;

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
  /// The clone does not count as another of the `world_size` stores.
  std::shared_ptr<Store> clone() const override;

 private:
  struct Impl;
  FileStore(std::shared_ptr<Impl> impl, Milliseconds timeout);
  std::shared_ptr<Impl> impl_;
};

}  // namespace hookline
