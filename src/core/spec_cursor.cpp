// The tokenizer of specs.
#include "core/spec_cursor.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::core {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

}  // namespace

void SpecCursor::skip_spaces() {
  while (position_ < text_.size() && is_space(text_[position_])) ++position_;
}

bool SpecCursor::at_end() {
  skip_spaces();
  return position_ == text_.size();
}

bool SpecCursor::accept(char c) {
  if (at_end() || text_[position_] != c) return false;
  ++position_;
  return true;
}

std::string_view SpecCursor::word() {
  skip_spaces();
  last_position_ = position_;
  while (position_ < text_.size() && is_word(text_[position_])) ++position_;
  return text_.substr(last_position_, position_ - last_position_);
}

std::string_view SpecCursor::value() {
  skip_spaces();
  last_position_ = position_;
  position_ = std::min(text_.find_first_of(",()|", position_), text_.size());
  std::size_t end = position_;
  while (end > last_position_ && is_space(text_[end - 1])) --end;
  return text_.substr(last_position_, end - last_position_);
}

void SpecCursor::throw_expected_at(std::size_t position, std::string_view expected) const {
  const std::string found = position < text_.size() ? fmt::format("'{}'", text_.substr(position, 20)) : "the end";
  throw InvalidArgument(fmt::format("invalid {} spec '{}': expected {} at character {}, got {}", kind_, text_, expected,
                                    position + 1, found));
}

}  // namespace hookline::core
