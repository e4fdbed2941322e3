// Recursive-descent parser of hook specs.
#include "hook/hook_text.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/text_cursor.hpp"

namespace hookline::hook {
namespace {

std::string identifier(core::TextCursor& cursor, std::string_view expected) {
  const std::string_view word = cursor.word();
  if (!is_identifier(word)) cursor.refuse_last(expected);
  return std::string(word);
}

HookPart read_part(core::TextCursor& cursor, std::string_view text, std::string_view what) {
  const bool of_hook = what == "hook";
  HookPart part{.name = identifier(cursor, of_hook ? "the name of a hook" : "the name of an optimizer"), .options = {}};
  if (!cursor.accept('(') || cursor.accept(')')) return part;
  do {
    const std::string name = identifier(cursor, "the name of an option");
    if (!cursor.accept('=')) cursor.refuse("'='");
    const std::string_view value = cursor.value();
    if (value.empty()) cursor.refuse_last("a value");
    if (!part.options.emplace(name, value).second) {
      throw InvalidArgument(fmt::format("invalid {} spec '{}': option {} is given twice", what, text, name));
    }
  } while (cursor.accept(','));
  if (!cursor.accept(')')) cursor.refuse("',' or ')'");
  return part;
}

}  // namespace

bool is_identifier(std::string_view text) {
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 && std::ranges::all_of(text, is_word);
}

std::vector<HookPart> read_hook_text(std::string_view text, std::string_view what) {
  core::TextCursor cursor(text, what);
  std::vector<HookPart> parts;
  do parts.push_back(read_part(cursor, text, what));
  while (cursor.accept('|'));
  if (!cursor.at_end()) cursor.refuse("'|' or the end");
  return parts;
}

}  // namespace hookline::hook
