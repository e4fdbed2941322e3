// RequestReader: scanning, buffering and decoding of requests.
#include "store/request_reader.hpp"

#include <algorithm>

namespace hookline::store {
namespace {

// The fields of a request in order. The fields after a count are repeated that many times.
enum class Field : std::uint8_t { end, key, value, count, number32, number64 };
using Shape = std::array<Field, 4>;

constexpr std::array<Shape, kQueries> kShapes = [] {
  std::array<Shape, kQueries> shapes{};
  const auto shape = [&shapes](Query query) -> Shape& { return shapes[static_cast<std::size_t>(query)]; };
  shape(Query::validate) = {Field::number32};
  shape(Query::set) = {Field::key, Field::value};
  shape(Query::compare_set) = {Field::key, Field::value, Field::value};
  shape(Query::get) = {Field::key};
  shape(Query::add) = {Field::key, Field::number64};
  shape(Query::check) = {Field::count, Field::key};
  shape(Query::wait) = {Field::count, Field::key};
  shape(Query::num_keys) = {};
  shape(Query::delete_key) = {Field::key};
  shape(Query::append) = {Field::key, Field::value};
  shape(Query::multi_get) = {Field::count, Field::key};
  shape(Query::multi_set) = {Field::count, Field::key, Field::value};
  shape(Query::cancel_wait) = {};
  shape(Query::ping) = {Field::number32};
  shape(Query::queue_push) = {Field::key, Field::value};
  shape(Query::queue_pop) = {Field::key};
  shape(Query::queue_len) = {Field::key};
  shape(Query::list_keys) = {};
  shape(Query::barrier) = {Field::key, Field::number64};
  return shapes;
}();

Field field_of(Query query, std::size_t index) { return kShapes[static_cast<std::size_t>(query)][index]; }

std::size_t number_size(Field field) { return field == Field::number32 ? 4 : 8; }

// Decodes a complete request.
void decode(std::string_view bytes, Request& request) {
  request.keys.clear();
  request.values.clear();
  request.number = 0;
  request.query = static_cast<Query>(bytes[0]);
  std::size_t at = 1;
  std::uint64_t rounds = 1;
  const auto text = [&] {
    const auto size = number_at<std::uint64_t>(bytes, at);
    at += 8 + size;
    return bytes.substr(at - size, size);
  };
  std::size_t first = 0;
  if (field_of(request.query, 0) == Field::count) {
    rounds = number_at<std::uint64_t>(bytes, at);
    request.keys.reserve(rounds);  // bounded: all bytes have been received
    at += 8;
    first = 1;
  }
  for (; rounds > 0; --rounds) {
    for (std::size_t i = first; field_of(request.query, i) != Field::end; ++i) {
      switch (field_of(request.query, i)) {
        case Field::key: request.keys.push_back(text()); break;
        case Field::value: request.values.push_back(text()); break;
        case Field::number32:
          request.number = number_at<std::uint32_t>(bytes, at);
          at += 4;
          break;
        case Field::number64:
          request.number = number_at<std::int64_t>(bytes, at);
          at += 8;
          break;
        default: break;
      }
    }
  }
}

}  // namespace

// Advances to the next field. Returns false at the end of the request.
bool RequestReader::Place::next_field() {
  ++field;
  if (field_of(query, field) != Field::end) return true;
  if (rounds <= 1) return false;
  --rounds;
  field = 1;  // a count is always the first field
  return true;
}

// Processes a complete number. Returns false if it exceeds a limit.
bool RequestReader::Place::take_number(std::uint64_t value) {
  switch (field_of(query, field)) {
    case Field::key: text_left = value; return value <= kMaxKeyBytes;
    case Field::value: text_left = value; return value <= kMaxValueBytes;
    case Field::count: rounds = value; return value <= kMaxKeys;
    default: return true;
  }
}

// Continues from position_ to the end of the request or of the bytes, and advances `offset` to it. Announced sizes do
// not allocate memory.
Scan RequestReader::scan(std::string_view bytes, std::size_t& at) {
  Place& p = place_;
  if (p.total == 0) {
    if (bytes.empty()) return Scan::incomplete;
    const auto query = static_cast<std::uint8_t>(bytes[at++]);
    if (query >= kQueries) return Scan::bad;
    p.query = static_cast<Query>(query);
    p.total = 1;
    if (field_of(p.query, 0) == Field::end) return Scan::complete;
  }
  while (at < bytes.size()) {
    if (p.text_left > 0) {
      const std::size_t step = std::min<std::uint64_t>(p.text_left, bytes.size() - at);
      at += step;
      p.text_left -= step;
      if (p.text_left == 0 && !p.next_field()) return Scan::complete;
      continue;
    }
    const Field field = field_of(p.query, p.field);
    p.number[p.number_fill++] = bytes[at++];
    if (p.number_fill < number_size(field)) continue;
    p.number_fill = 0;
    const std::uint64_t number =
        field == Field::number32 ? 0 : number_at<std::uint64_t>({p.number.data(), p.number.size()}, 0);
    if (!p.take_number(number)) return Scan::bad;
    p.total += number_size(field) + p.text_left;
    if (p.total > kMaxRequestBytes) return Scan::bad;
    if (field == Field::count && number == 0) return Scan::complete;
    if (p.text_left == 0 && !p.next_field()) return Scan::complete;
  }
  return Scan::incomplete;
}

Scan RequestReader::read(std::string_view& bytes, Request& request) {
  joined_ = std::string();
  std::size_t used = 0;
  const Scan state = scan(bytes, used);
  const std::string_view piece = bytes.substr(0, used);
  bytes.remove_prefix(used);
  if (state == Scan::bad) return state;
  const bool in_one_piece = state == Scan::complete && held_ == 0;  // the common case, without a copy
  if (!in_one_piece) keep(piece);
  if (state == Scan::incomplete) return state;
  if (!in_one_piece) join();
  decode(in_one_piece ? piece : joined_, request);
  place_ = Place();
  return state;
}

void RequestReader::keep(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t at = held_ % kBlock;
    if (at == 0) blocks_.push_back(std::make_unique_for_overwrite<std::array<char, kBlock>>());
    const std::size_t step = std::min(kBlock - at, bytes.size());
    std::copy_n(bytes.begin(), step, blocks_.back()->data() + at);
    held_ += step;
    bytes.remove_prefix(step);
  }
}

void RequestReader::join() {
  joined_.reserve(held_);
  for (auto& block : blocks_) {
    joined_.append(block->data(), std::min(kBlock, held_ - joined_.size()));
    block.reset();
  }
  blocks_ = decltype(blocks_)();
  held_ = 0;
}

}  // namespace hookline::store
