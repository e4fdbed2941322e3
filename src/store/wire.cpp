// The TCP store's protocol: finding the end of a request, and taking it apart.
#include "store/wire.hpp"

#include <algorithm>

namespace hookline::store {
namespace {

// The fields of a request in their order; those after a count come as many times as it says.
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

template <typename T>
T number_at(const char* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof(T));
  return number;
}

}  // namespace

// Steps to the field that follows; false at the end of the request.
bool RequestScanner::next_field() {
  ++field_;
  if (field_of(query_, field_) != Field::end) return true;
  if (rounds_ <= 1) return false;
  --rounds_;
  field_ = 1;  // a count is always the first field
  return true;
}

// Takes a number that is there in full; false where it says something that may not be.
bool RequestScanner::take_number(std::uint64_t number) {
  switch (field_of(query_, field_)) {
    case Field::key: text_left_ = number; return number <= kMaxKeyBytes;
    case Field::value: text_left_ = number; return number <= kMaxValueBytes;
    case Field::count: rounds_ = number; return number <= kMaxKeys;
    default: return true;
  }
}

RequestScanner::Result RequestScanner::scan(std::string_view bytes) {
  std::size_t at = 0;
  const auto done = [&] {
    *this = RequestScanner();
    return Result{Scan::complete, at};
  };
  if (!begun_) {
    if (bytes.empty()) return {Scan::incomplete, 0};
    const auto query = static_cast<std::uint8_t>(bytes[at++]);
    if (query >= kQueries) return {Scan::bad, at};
    begun_ = true;
    query_ = static_cast<Query>(query);
    total_ = 1;
    if (field_of(query_, 0) == Field::end) return done();
  }
  while (at < bytes.size()) {
    if (text_left_ > 0) {
      const std::size_t step = std::min<std::uint64_t>(text_left_, bytes.size() - at);
      at += step;
      text_left_ -= step;
      if (text_left_ == 0 && !next_field()) return done();
      continue;
    }
    const Field field = field_of(query_, field_);
    const std::size_t step = std::min(number_size(field) - number_fill_, bytes.size() - at);
    std::memcpy(number_.data() + number_fill_, bytes.data() + at, step);
    at += step;
    number_fill_ += step;
    if (number_fill_ < number_size(field)) break;
    number_fill_ = 0;
    const std::uint64_t number = field == Field::number32 ? 0 : number_at<std::uint64_t>(number_.data());
    if (!take_number(number)) return {Scan::bad, at};
    total_ += number_size(field) + text_left_;
    if (total_ > kMaxRequestBytes) return {Scan::bad, at};
    if (field == Field::count && number == 0) return done();
    if (text_left_ == 0 && !next_field()) return done();
  }
  return {Scan::incomplete, at};
}

void decode(std::string_view bytes, Request& request) {
  request.keys.clear();
  request.values.clear();
  request.number = 0;
  request.query = static_cast<Query>(bytes[0]);
  std::size_t at = 1;
  std::uint64_t rounds = 1;
  const auto text = [&] {
    const auto size = number_at<std::uint64_t>(bytes.data() + at);
    at += 8 + size;
    return bytes.substr(at - size, size);
  };
  std::size_t first = 0;
  if (field_of(request.query, 0) == Field::count) {
    rounds = number_at<std::uint64_t>(bytes.data() + at);
    at += 8;
    first = 1;
  }
  for (; rounds > 0; --rounds) {
    for (std::size_t i = first; field_of(request.query, i) != Field::end; ++i) {
      switch (field_of(request.query, i)) {
        case Field::key: request.keys.push_back(text()); break;
        case Field::value: request.values.push_back(text()); break;
        case Field::number32:
          request.number = number_at<std::uint32_t>(bytes.data() + at);
          at += 4;
          break;
        case Field::number64:
          request.number = number_at<std::int64_t>(bytes.data() + at);
          at += 8;
          break;
        default: break;
      }
    }
  }
}

}  // namespace hookline::store
