// RequestReader: the incremental parser of store requests.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/wire.hpp"

namespace hookline::store {

enum class ParseStatus { incomplete, complete, invalid };

/// Parses the byte stream of one connection. Rejects invalid and oversized requests as early as possible, and decodes a
/// request when it is complete. A partial request uses the memory of its received bytes plus at most 64 KiB.
class RequestReader {
 public:
  /// Consumes one request from the front of `bytes`, or all bytes if it is incomplete. After `complete`, the strings of
  /// `request` are valid until the next call and as long as `bytes`. After `invalid`, the stream cannot be resumed.
  ParseStatus read(std::string_view& bytes, Request& request);

  /// Returns the number of buffered bytes of a partial request.
  std::size_t pending_bytes() const { return pending_bytes_; }

 private:
  static constexpr std::size_t kBlock = 32 * 1024;

  /// The parse position in the current request.
  struct Position {
    Query query = Query::validate;
    std::size_t field = 0;
    std::uint64_t repeats_left = 0;  // remaining repetitions of the fields after a count
    std::uint64_t text_left = 0;     // remaining bytes of a string
    std::uint64_t total = 0;         // bytes including announced ones; 0 before the first byte
    std::array<char, 8> number{};
    std::size_t number_fill = 0;

    bool next_field();
    bool accept_number(std::uint64_t value);
  };

  ParseStatus scan(std::string_view bytes, std::size_t& offset);
  void buffer(std::string_view bytes);
  void join_blocks();

  Position position_;
  std::vector<std::unique_ptr<std::array<char, kBlock>>> blocks_;
  std::size_t pending_bytes_ = 0;
  std::string joined_;
};

}  // namespace hookline::store
