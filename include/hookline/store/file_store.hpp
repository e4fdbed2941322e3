// A store in a file that the processes of one host share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hookline/store/store.hpp>

namespace hookline {

/// Several processes, threads and FileStore objects may use one file at once. A process that is killed leaves neither a
/// lock nor half an operation behind. Names and values up to 256 MiB each. The file must be of the caller's own user
/// where its directory is writable for others; symbolic links are not followed there.
///
/// With a world size, the last of at least that many stores to be destroyed removes the file, so that its path can be
/// used for the next run. One that was opened already goes on working when somebody removes the file.
class HOOKLINE_EXPORT FileStore final : public Store {
 public:
  /// Opens the file or makes it, readable for this user only. ResourceError where the system refuses or the file is
  /// damaged, InvalidArgument where it is something else or the world size is out of range; -1 leaves it open.
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
  /// The clone counts as the same one of the `world_size` stores.
  std::shared_ptr<Store> clone() const override;

 private:
  struct Parts;
  FileStore(std::shared_ptr<Parts> parts, Milliseconds timeout);
  std::shared_ptr<Parts> parts_;
};

}  // namespace hookline
