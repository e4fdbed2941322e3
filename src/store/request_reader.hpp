// Cuts the bytes of one connection into whole requests, and keeps a half-sent one until the rest of it comes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/wire.hpp"

namespace hookline::store {

/// What a half-sent request holds is the bytes that came and at most 64 KiB more.
class RequestReader {
 public:
  /// Takes one request off the front of `bytes`, or all of them where the request does not end there. On `complete`,
  /// `whole` is the request's bytes, valid until the next call and while `bytes` is.
  Scan read(std::string_view& bytes, std::string_view& whole);

  /// How many bytes of a half-sent request are kept.
  std::size_t held() const { return held_; }

 private:
  static constexpr std::size_t kBlock = 32 * 1024;

  void keep(std::string_view bytes);
  void join();

  RequestScanner scanner_;
  std::vector<std::unique_ptr<std::array<char, kBlock>>> blocks_;
  std::size_t held_ = 0;
  std::string joined_;
};

}  // namespace hookline::store
