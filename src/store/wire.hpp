// The TCP store's protocol, which is that of PyTorch's TCPStore: what requests look like as bytes. No I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/number_bytes.hpp"

namespace hookline::store {

// A request is one byte, the query, and its fields. Numbers stand in the order of the machine's own bytes, as PyTorch
// writes them; a text (key or value) is its size in 8 bytes and then itself.
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
inline constexpr std::size_t kQueries = 19;

/// The first request of a connection is validate with this number.
inline constexpr std::uint32_t kMagic = 0x3C85F7CE;

// Numbers of pings and of answers to them that mean more. A client's first ping carries its process number otherwise,
// which is smaller.
/// The ping of a client that has a token; a server of the plain protocol, PyTorch's too, answers it with the same.
inline constexpr std::uint32_t kTokenPing = 0xF0544F4B;
/// The answer of a server with a token to a client without one.
inline constexpr std::uint32_t kTokenRequired = 0xF0524551;
/// The answer of a server that has as many connections as it allows.
inline constexpr std::uint32_t kServerFull = 0xF046554C;

enum class CheckReply : std::uint8_t { ready, not_ready };
enum class WaitReply : std::uint8_t { stop_waiting, wait_canceled };

// PyTorch's server has the first three limits. It has none for a whole request or reply, which would then be bounded by
// nothing: a few bytes that ask many times for one large value make it write without end.
inline constexpr std::uint64_t kMaxKeyBytes = 8 * 1024;
inline constexpr std::uint64_t kMaxValueBytes = 8 * 1024 * 1024;
inline constexpr std::uint64_t kMaxKeys = 128 * 1024;
inline constexpr std::uint64_t kMaxRequestBytes = 64 * 1024 * 1024;
inline constexpr std::uint64_t kMaxReplyBytes = 64 * 1024 * 1024;

/// Users' keys carry this prefix on the wire; keys of the store itself do not.
inline constexpr std::string_view kKeyPrefix = "/";
/// The counter of the processes that have connected.
inline constexpr std::string_view kWorkersKey = "init/";

/// A decoded request; its texts lie in the bytes that it was decoded from.
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

/// The bytes of a request: its query, then its fields in their order.
class RequestBytes {
 public:
  explicit RequestBytes(Query query) : bytes_(1, static_cast<char>(query)) {}

  /// A user's key, with its prefix.
  RequestBytes& key(std::string_view key) {
    append_number<std::uint64_t>(bytes_, kKeyPrefix.size() + key.size());
    bytes_.append(kKeyPrefix).append(key);
    return *this;
  }
  /// How many keys, and the keys.
  RequestBytes& keys(const std::vector<std::string>& keys) {
    number<std::uint64_t>(keys.size());
    for (const std::string& each : keys) key(each);
    return *this;
  }
  RequestBytes& text(std::string_view text) {
    append_text(bytes_, text);
    return *this;
  }
  template <typename T>
  RequestBytes& number(T number) {
    append_number(bytes_, number);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace hookline::store
