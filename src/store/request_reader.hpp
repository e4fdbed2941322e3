// Takes requests out of the bytes of one connection, however these are cut.
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

enum class Scan { incomplete, complete, bad };

/// It refuses what is no request or too large as soon as the bytes say so. A request is taken apart when all of it is
/// there: what a half-sent one holds is the bytes that came and at most 64 KiB more.
class RequestReader {
 public:
  /// Takes one request off the front of `bytes`, or all of them where the request does not end there. After `complete`
  /// the texts of `request` are valid until the next call and while `bytes` is; after `bad` nothing more is to be had.
  Scan read(std::string_view& bytes, Request& request);

  /// How many bytes of a half-sent request are kept.
  std::size_t held() const { return held_; }

 private:
  static constexpr std::size_t kBlock = 32 * 1024;

  /// How far the request that is under way has been looked at.
  struct Place {
    Query query = Query::validate;
    std::size_t field = 0;
    std::uint64_t rounds = 0;     // how often the fields after a count are still to come
    std::uint64_t text_left = 0;  // bytes of a text still to come
    std::uint64_t total = 0;      // bytes, those announced too; 0 before the first one
    std::array<char, 8> number{};
    std::size_t number_fill = 0;

    bool next_field();
    bool take_number(std::uint64_t value);
  };

  Scan scan(std::string_view bytes, std::size_t& at);
  void keep(std::string_view bytes);
  void join();

  Place place_;
  std::vector<std::unique_ptr<std::array<char, kBlock>>> blocks_;
  std::size_t held_ = 0;
  std::string joined_;
};

}  // namespace hookline::store
