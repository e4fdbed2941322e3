// The parser: one pass from left to right.
#include "hook/hook_text.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::hook {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

class Reader {
 public:
  Reader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  std::vector<HookPart> read() {
    std::vector<HookPart> parts;
    do parts.push_back(part());
    while (accept('|'));
    if (at_ < text_.size()) refuse("'|' or the end");
    return parts;
  }

 private:
  HookPart part() {
    HookPart result{.name = word(what_ == "hook" ? "the name of a hook" : "the name of an optimizer"), .options = {}};
    if (!accept('(') || accept(')')) return result;
    do {
      const std::string name = word("the name of an option");
      if (!accept('=')) refuse("'='");
      if (!result.options.emplace(name, value()).second) {
        throw InvalidArgument(fmt::format("the {} '{}': option {} is given twice", what_, text_, name));
      }
    } while (accept(','));
    if (!accept(')')) refuse("',' or ')'");
    return result;
  }

  std::string word(const char* expected) {
    skip();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (!is_identifier(text_.substr(begin, at_ - begin))) {
      at_ = begin;
      refuse(expected);
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string value() {
    skip();
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(",()|", begin), text_.size());
    std::size_t end = at_;
    while (end > begin && is_space(text_[end - 1])) --end;
    if (end == begin) refuse("a value");
    return std::string(text_.substr(begin, end - begin));
  }

  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  [[noreturn]] void refuse(const char* expected) const {
    const std::string found = at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 20)) : "the end";
    throw InvalidArgument(fmt::format("the {} '{}' cannot be read: {} was expected at character {}, not {}", what_,
                                      text_, expected, at_ + 1, found));
  }

  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_identifier(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), is_word);
}

std::vector<HookPart> read_hook_text(std::string_view text, std::string_view what) { return Reader(text, what).read(); }

}  // namespace hookline::hook
