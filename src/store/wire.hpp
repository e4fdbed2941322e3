// The wire format of PyTorch's TCPStore protocol. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/number_bytes.hpp"

namespace hookline::store {

// A request is one byte, the query, followed by its fields. Numbers are in host byte order, as in PyTorch. A string
// (key or value) is its size in 8 bytes followed by its bytes.
enum class Query : std::uint8_t {
  validate,
  set,
  compare_set,
  get,
  add,
  check,
  wait,
  num_keys,
  delete_key,
  append,
  multi_get,
  multi_set,
  cancel_wait,
  ping,
  queue_push,
  queue_pop,
  queue_len,
  list_keys,
  barrier,
};
inline constexpr std::size_t kNumQueries = 19;

/// The argument of `validate`, the first request of a connection.
inline constexpr std::uint32_t kMagic = 0x3C85F7CE;

// Reserved nonces of pings and of their replies. Other pings carry the client's pid, which is always smaller.
/// The ping of a client with a token. A server without a token echoes it, like every ping.
inline constexpr std::uint32_t kTokenPing = 0xF0544F4B;
/// The reply of a server with a token to a client without one.
inline constexpr std::uint32_t kTokenRequired = 0xF0524551;
/// The reply of a server that has reached max_connections.
inline constexpr std::uint32_t kServerFull = 0xF046554C;

enum class CheckReply : std::uint8_t { ready, not_ready };
enum class WaitReply : std::uint8_t { stop_waiting, wait_canceled };

// PyTorch's server has the first three limits only. Without a limit on replies, a small request for many copies of a
// large value would produce unbounded output.
inline constexpr std::uint64_t kMaxKeyBytes = 8 * 1024;
inline constexpr std::uint64_t kMaxValueBytes = 8 * 1024 * 1024;
inline constexpr std::uint64_t kMaxKeys = 128 * 1024;
inline constexpr std::uint64_t kMaxRequestBytes = 64 * 1024 * 1024;
inline constexpr std::uint64_t kMaxReplyBytes = 64 * 1024 * 1024;

/// The wire prefix of user keys. Internal keys of the store have none.
inline constexpr std::string_view kKeyPrefix = "/";
/// The counter of connected workers.
inline constexpr std::string_view kWorkersKey = "init/";

/// A decoded request. Its strings refer to the bytes that it was decoded from.
struct Request {
  Query query = Query::validate;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;
  std::int64_t number = 0;
};

inline void append_text(std::string& out, std::string_view text) {
  append_number<std::uint64_t>(out, text.size());
  out.append(text);
}

/// Builds the bytes of a request: the query, then its fields in order.
class RequestBuilder {
 public:
  explicit RequestBuilder(Query query) : bytes_(1, static_cast<char>(query)) {}

  /// Appends a user key with its prefix.
  RequestBuilder& key(std::string_view key) {
    append_number<std::uint64_t>(bytes_, kKeyPrefix.size() + key.size());
    bytes_.append(kKeyPrefix).append(key);
    return *this;
  }
  /// Appends the number of keys and the keys.
  RequestBuilder& keys(const std::vector<std::string>& keys) {
    number<std::uint64_t>(keys.size());
    for (const std::string& each : keys) key(each);
    return *this;
  }
  RequestBuilder& text(std::string_view text) {
    append_text(bytes_, text);
    return *this;
  }
  template <typename T>
  RequestBuilder& number(T number) {
    append_number(bytes_, number);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace hookline::store
