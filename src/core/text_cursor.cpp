// The tokenizer of specs.
#include "core/text_cursor.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::core {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

}  // namespace

void TextCursor::skip_spaces() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

bool TextCursor::at_end() {
  skip_spaces();
  return at_ == text_.size();
}

bool TextCursor::accept(char c) {
  if (at_end() || text_[at_] != c) return false;
  ++at_;
  return true;
}

std::string_view TextCursor::word() {
  skip_spaces();
  last_ = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(last_, at_ - last_);
}

std::string_view TextCursor::value() {
  skip_spaces();
  last_ = at_;
  at_ = std::min(text_.find_first_of(",()|", at_), text_.size());
  std::size_t end = at_;
  while (end > last_ && is_space(text_[end - 1])) --end;
  return text_.substr(last_, end - last_);
}

void TextCursor::refuse_at(std::size_t at, std::string_view expected) const {
  const std::string found = at < text_.size() ? fmt::format("'{}'", text_.substr(at, 20)) : "the end";
  throw InvalidArgument(
      fmt::format("invalid {} spec '{}': expected {} at character {}, got {}", what_, text_, expected, at + 1, found));
}

}  // namespace hookline::core
