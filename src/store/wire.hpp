// The TCP store's protocol, which is that of PyTorch's TCPStore: what requests look like as bytes. No I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

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

enum class Scan { incomplete, complete, bad };

/// Finds the end of a request in bytes that come piece by piece, and refuses what is no request or too large. It keeps
/// no byte of it, so an announced size costs nothing.
class RequestScanner {
 public:
  struct Result {
    Scan state;
    std::size_t used;  // how many of the bytes belong to this request
  };
  /// After `complete` the next call begins a new request; after `bad` there is nothing more to be had.
  Result scan(std::string_view bytes);

 private:
  bool next_field();
  bool take_number(std::uint64_t number);

  bool begun_ = false;
  Query query_ = Query::validate;
  std::size_t field_ = 0;
  std::uint64_t rounds_ = 0;     // how often the fields after a count are still to come
  std::uint64_t text_left_ = 0;  // bytes of a text still to come
  std::uint64_t total_ = 0;
  std::array<char, 8> number_{};
  std::size_t number_fill_ = 0;
};

/// Takes apart bytes that a scanner has found complete.
void decode(std::string_view bytes, Request& request);

template <typename T>
void append_number(std::string& out, T number) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &number, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

inline void append_query(std::string& out, Query query) { out.push_back(static_cast<char>(query)); }

inline void append_text(std::string& out, std::string_view text) {
  append_number<std::uint64_t>(out, text.size());
  out.append(text);
}

/// A user's key, with its prefix.
inline void append_key(std::string& out, std::string_view key) {
  append_number<std::uint64_t>(out, kKeyPrefix.size() + key.size());
  out.append(kKeyPrefix);
  out.append(key);
}

inline void append_one(std::string& out, Query query, std::string_view key) {
  append_query(out, query);
  append_key(out, key);
}

inline void append_keys(std::string& out, Query query, const std::vector<std::string>& keys) {
  append_query(out, query);
  append_number<std::uint64_t>(out, keys.size());
  for (const std::string& key : keys) append_key(out, key);
}

}  // namespace hookline::store
