// Recursive-descent parser of hook specs.
#include "hook/hook_spec.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/spec_cursor.hpp"

namespace hookline::hook {
namespace {

std::string identifier(core::SpecCursor& cursor, std::string_view expected) {
  const std::string_view word = cursor.word();
  if (!is_identifier(word)) cursor.throw_expected_at_last(expected);
  return std::string(word);
}

SpecTerm parse_term(core::SpecCursor& cursor, std::string_view spec, std::string_view kind) {
  const bool of_hook = kind == "hook";
  SpecTerm term{.name = identifier(cursor, of_hook ? "the name of a hook" : "the name of an optimizer"), .options = {}};
  if (!cursor.accept('(') || cursor.accept(')')) return term;
  do {
    const std::string name = identifier(cursor, "the name of an option");
    if (!cursor.accept('=')) cursor.throw_expected("'='");
    const std::string_view value = cursor.value();
    if (value.empty()) cursor.throw_expected_at_last("a value");
    if (!term.options.emplace(name, value).second) {
      throw InvalidArgument(fmt::format("invalid {} spec '{}': option {} is given twice", kind, spec, name));
    }
  } while (cursor.accept(','));
  if (!cursor.accept(')')) cursor.throw_expected("',' or ')'");
  return term;
}

}  // namespace

bool is_identifier(std::string_view text) {
  const auto is_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 && std::ranges::all_of(text, is_word);
}

std::vector<SpecTerm> parse_hook_spec(std::string_view spec, std::string_view kind) {
  core::SpecCursor cursor(spec, kind);
  std::vector<SpecTerm> terms;
  do terms.push_back(parse_term(cursor, spec, kind));
  while (cursor.accept('|'));
  if (!cursor.at_end()) cursor.throw_expected("'|' or the end");
  return terms;
}

}  // namespace hookline::hook
