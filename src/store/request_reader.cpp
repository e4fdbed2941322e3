// RequestReader: scanning, buffering and decoding of requests.
#include "store/request_reader.hpp"

#include <algorithm>

namespace hookline::store {
namespace {

// The fields of a request in order. The fields after a count are repeated that many times.
enum class Field : std::uint8_t { end, key, value, count, number32, number64 };
using Shape = std::array<Field, 4>;

constexpr std::array<Shape, kNumQueries> kShapes = [] {
  std::array<Shape, kNumQueries> shapes{};
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
  std::size_t offset = 1;
  std::uint64_t repeats_left = 1;
  const auto text = [&] {
    const auto size = number_at<std::uint64_t>(bytes, offset);
    offset += 8 + size;
    return bytes.substr(offset - size, size);
  };
  std::size_t first = 0;
  if (field_of(request.query, 0) == Field::count) {
    repeats_left = number_at<std::uint64_t>(bytes, offset);
    request.keys.reserve(repeats_left);  // bounded: all bytes have been received
    offset += 8;
    first = 1;
  }
  for (; repeats_left > 0; --repeats_left) {
    for (std::size_t i = first; field_of(request.query, i) != Field::end; ++i) {
      switch (field_of(request.query, i)) {
        case Field::key: request.keys.push_back(text()); break;
        case Field::value: request.values.push_back(text()); break;
        case Field::number32:
          request.number = number_at<std::uint32_t>(bytes, offset);
          offset += 4;
          break;
        case Field::number64:
          request.number = number_at<std::int64_t>(bytes, offset);
          offset += 8;
          break;
        default: break;
      }
    }
  }
}

}  // namespace

// Advances to the next field. Returns false at the end of the request.
bool RequestReader::Position::next_field() {
  ++field;
  if (field_of(query, field) != Field::end) return true;
  if (repeats_left <= 1) return false;
  --repeats_left;
  field = 1;  // a count is always the first field
  return true;
}

// Processes a complete number. Returns false if it exceeds a limit.
bool RequestReader::Position::accept_number(std::uint64_t value) {
  switch (field_of(query, field)) {
    case Field::key: text_left = value; return value <= kMaxKeyBytes;
    case Field::value: text_left = value; return value <= kMaxValueBytes;
    case Field::count: repeats_left = value; return value <= kMaxKeys;
    default: return true;
  }
}

// Continues from position_ to the end of the request or of the bytes, and advances `offset` to it. Announced sizes do
// not allocate memory.
ParseStatus RequestReader::scan(std::string_view bytes, std::size_t& offset) {
  Position& p = position_;
  if (p.total == 0) {
    if (bytes.empty()) return ParseStatus::incomplete;
    const auto query = static_cast<std::uint8_t>(bytes[offset++]);
    if (query >= kNumQueries) return ParseStatus::invalid;
    p.query = static_cast<Query>(query);
    p.total = 1;
    if (field_of(p.query, 0) == Field::end) return ParseStatus::complete;
  }
  while (offset < bytes.size()) {
    if (p.text_left > 0) {
      const std::size_t step = std::min<std::uint64_t>(p.text_left, bytes.size() - offset);
      offset += step;
      p.text_left -= step;
      if (p.text_left == 0 && !p.next_field()) return ParseStatus::complete;
      continue;
    }
    const Field field = field_of(p.query, p.field);
    p.number[p.number_fill++] = bytes[offset++];
    if (p.number_fill < number_size(field)) continue;
    p.number_fill = 0;
    const std::uint64_t number =
        field == Field::number32 ? 0 : number_at<std::uint64_t>({p.number.data(), p.number.size()}, 0);
    if (!p.accept_number(number)) return ParseStatus::invalid;
    p.total += number_size(field) + p.text_left;
    if (p.total > kMaxRequestBytes) return ParseStatus::invalid;
    if (field == Field::count && number == 0) return ParseStatus::complete;
    if (p.text_left == 0 && !p.next_field()) return ParseStatus::complete;
  }
  return ParseStatus::incomplete;
}

ParseStatus RequestReader::read(std::string_view& bytes, Request& request) {
  joined_ = std::string();
  std::size_t used = 0;
  const ParseStatus state = scan(bytes, used);
  const std::string_view piece = bytes.substr(0, used);
  bytes.remove_prefix(used);
  if (state == ParseStatus::invalid) return state;
  const bool in_one_piece = state == ParseStatus::complete && pending_bytes_ == 0;  // the common case, without a copy
  if (!in_one_piece) buffer(piece);
  if (state == ParseStatus::incomplete) return state;
  if (!in_one_piece) join_blocks();
  decode(in_one_piece ? piece : joined_, request);
  position_ = Position();
  return state;
}

void RequestReader::buffer(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t offset = pending_bytes_ % kBlock;
    if (offset == 0) blocks_.push_back(std::make_unique_for_overwrite<std::array<char, kBlock>>());
    const std::size_t step = std::min(kBlock - offset, bytes.size());
    std::copy_n(bytes.begin(), step, blocks_.back()->data() + offset);
    pending_bytes_ += step;
    bytes.remove_prefix(step);
  }
}

void RequestReader::join_blocks() {
  joined_.reserve(pending_bytes_);
  for (auto& block : blocks_) {
    joined_.append(block->data(), std::min(kBlock, pending_bytes_ - joined_.size()));
    block.reset();
  }
  blocks_ = decltype(blocks_)();
  pending_bytes_ = 0;
}

}  // namespace hookline::store
