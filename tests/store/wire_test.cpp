// Tests for the request parser: every query, invalid requests, and input in pieces of any size.
#include "store/wire.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include "store/request_reader.hpp"

namespace hookline::store {
namespace {

struct Sample {
  std::string bytes;
  Query query;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> values;
  std::int64_t number = 0;
};

std::string query_bytes(Query query, auto... fields) {
  RequestBuilder request(query);
  [[maybe_unused]] const auto put = [&request](auto field) {
    if constexpr (std::is_integral_v<decltype(field)>) {
      request.number(field);
    } else {
      request.text(field);
    }
  };
  (put(fields), ...);
  return request.bytes();
}

std::vector<Sample> samples() {
  return {
      {query_bytes(Query::validate, kMagic), Query::validate, {}, {}, kMagic},
      {query_bytes(Query::set, "/k", "v"), Query::set, {"/k"}, {"v"}},
      {query_bytes(Query::set, "", ""), Query::set, {""}, {""}},
      {query_bytes(Query::compare_set, "/k", "old", "new"), Query::compare_set, {"/k"}, {"old", "new"}},
      {query_bytes(Query::get, "/k"), Query::get, {"/k"}, {}},
      {query_bytes(Query::add, "/k", std::int64_t{-5}), Query::add, {"/k"}, {}, -5},
      {query_bytes(Query::check, std::uint64_t{0}), Query::check, {}, {}},
      {query_bytes(Query::check, std::uint64_t{2}, "/a", "/b"), Query::check, {"/a", "/b"}, {}},
      {query_bytes(Query::wait, std::uint64_t{1}, ""), Query::wait, {""}, {}},
      {query_bytes(Query::num_keys), Query::num_keys, {}, {}},
      {query_bytes(Query::delete_key, "/k"), Query::delete_key, {"/k"}, {}},
      {query_bytes(Query::append, "/k", "v"), Query::append, {"/k"}, {"v"}},
      {query_bytes(Query::multi_get, std::uint64_t{2}, "/a", "/b"), Query::multi_get, {"/a", "/b"}, {}},
      {query_bytes(Query::multi_set, std::uint64_t{2}, "/a", "1", "/b", ""), Query::multi_set, {"/a", "/b"}, {"1", ""}},
      {query_bytes(Query::multi_set, std::uint64_t{0}), Query::multi_set, {}, {}},
      {query_bytes(Query::cancel_wait), Query::cancel_wait, {}, {}},
      {query_bytes(Query::ping, std::uint32_t{77}), Query::ping, {}, {}, 77},
      {query_bytes(Query::queue_push, "/q", "v"), Query::queue_push, {"/q"}, {"v"}},
      {query_bytes(Query::queue_pop, "/q"), Query::queue_pop, {"/q"}, {}},
      {query_bytes(Query::queue_len, "/q"), Query::queue_len, {"/q"}, {}},
      {query_bytes(Query::list_keys), Query::list_keys, {}, {}},
      {query_bytes(Query::barrier, "/b", std::int64_t{4}), Query::barrier, {"/b"}, {}, 4},
  };
}

void expect_same(const Request& request, const Sample& sample) {
  EXPECT_EQ(request.query, sample.query);
  EXPECT_EQ(request.keys, sample.keys);
  EXPECT_EQ(request.values, sample.values);
  EXPECT_EQ(request.number, sample.number);
}

TEST(Wire, ParsesEveryQuery) {
  for (const Sample& sample : samples()) {
    const std::string more = sample.bytes + "tail";
    std::string_view bytes = more;
    Request request;
    ASSERT_EQ(RequestReader().read(bytes, request), ParseStatus::complete) << int(sample.query);
    EXPECT_EQ(bytes, "tail");
    expect_same(request, sample);
  }
}

TEST(Wire, MatchesPyTorch) {  // as a client of PyTorch 2.13 sends them
  const std::string set("\x01\x02\0\0\0\0\0\0\0/k\x01\0\0\0\0\0\0\0v", 20);
  EXPECT_EQ(query_bytes(Query::set, "/k", "v"), set);
  EXPECT_EQ(RequestBuilder(Query::set).key("k").text("v").bytes(), set);
  EXPECT_EQ(query_bytes(Query::validate, kMagic), std::string("\x00\xce\xf7\x85<", 5));
  EXPECT_EQ(query_bytes(Query::barrier, "/b", std::int64_t{2}),
            std::string("\x12\x02\0\0\0\0\0\0\0/b\x02\0\0\0\0\0\0\0", 19));
}

TEST(Wire, ParsesPiecesOfAnySize) {
  std::string stream;
  for (const Sample& sample : samples()) stream += sample.bytes;
  for (std::size_t piece = 1; piece < 40; ++piece) {
    RequestReader reader;
    Request request;
    std::size_t found = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      std::string_view bytes = std::string_view(stream).substr(at, piece);
      while (!bytes.empty()) {
        const ParseStatus state = reader.read(bytes, request);
        ASSERT_NE(state, ParseStatus::invalid);
        if (state == ParseStatus::complete) expect_same(request, samples().at(found++));
      }
    }
    EXPECT_EQ(reader.pending_bytes(), 0U);
    EXPECT_EQ(found, samples().size()) << "in pieces of " << piece;
  }
}

ParseStatus read(RequestReader& reader, std::string_view bytes) {
  Request request;
  return reader.read(bytes, request);
}

TEST(Wire, RejectsInvalidAndOversizedRequests) {
  const auto state_of = [](std::string_view bytes) {
    RequestReader reader;
    return read(reader, bytes);
  };
  for (int query = kNumQueries; query < 256; ++query)
    EXPECT_EQ(state_of(std::string(1, static_cast<char>(query))), ParseStatus::invalid);
  for (const std::uint64_t size : {kMaxKeyBytes + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_EQ(state_of(query_bytes(Query::get, size)), ParseStatus::invalid);
  }
  EXPECT_EQ(state_of(query_bytes(Query::get, kMaxKeyBytes)), ParseStatus::incomplete);
  EXPECT_EQ(state_of(query_bytes(Query::set, "k", kMaxValueBytes)), ParseStatus::incomplete);
  EXPECT_EQ(state_of(query_bytes(Query::set, "k", kMaxValueBytes + 1)), ParseStatus::invalid);
  EXPECT_EQ(state_of(query_bytes(Query::wait, kMaxKeys)), ParseStatus::incomplete);
  EXPECT_EQ(state_of(query_bytes(Query::wait, kMaxKeys + 1)), ParseStatus::invalid);
  EXPECT_EQ(state_of(query_bytes(Query::multi_set, ~std::uint64_t{0})), ParseStatus::invalid);
}

TEST(Wire, RejectsRequestsOverTheTotalLimit) {
  RequestReader reader;
  ASSERT_EQ(read(reader, query_bytes(Query::multi_set, std::uint64_t{100})), ParseStatus::incomplete);
  const std::string value(kMaxValueBytes, 'v');
  std::string pair;
  append_text(pair, "k");
  append_text(pair, value);
  for (int i = 0; i < 7; ++i) ASSERT_EQ(read(reader, pair), ParseStatus::incomplete);
  EXPECT_EQ(read(reader, pair), ParseStatus::invalid);
}

std::size_t allocated() {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// The maximum memory of a reader beyond the bytes received, before the request is complete.
std::size_t excess(const std::string& bytes, std::size_t piece) {
  const std::size_t before = allocated();
  RequestReader reader;
  std::size_t most = 0;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_EQ(read(reader, std::string_view(bytes).substr(at, piece)), ParseStatus::incomplete);
    const std::size_t now = allocated() - before;
    most = std::max(most, now - std::min(now, at + piece));
  }
  return most;
}

TEST(Wire, PartialRequestsUseBoundedMemory) {
  constexpr std::size_t kAllowed = 64 * 1024;
  std::string value = query_bytes(Query::set, "k", kMaxValueBytes);
  EXPECT_LT(excess(value, 4096), kAllowed);  // announced size only
  value.append(kMaxValueBytes - 1, 'v');
  EXPECT_LT(excess(value, 64 * 1024), kAllowed);
  EXPECT_LT(excess(value, 1000), kAllowed);
  std::string keys = query_bytes(Query::wait, kMaxKeys);
  for (std::uint64_t i = 0; i + 1 < kMaxKeys; ++i) append_text(keys, "");
  EXPECT_LT(excess(keys, 64 * 1024), kAllowed);
  std::string pairs = query_bytes(Query::multi_set, std::uint64_t{8});
  for (int i = 0; i < 7; ++i) {
    append_text(pairs, "k");
    append_text(pairs, std::string(kMaxValueBytes, 'v'));
  }
  EXPECT_LT(excess(pairs, 64 * 1024), kAllowed);
}

}  // namespace
}  // namespace hookline::store
