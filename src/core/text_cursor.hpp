// SpecCursor: the tokenizer of hook, codec and optimizer specs.
#pragma once

#include <string_view>

namespace hookline::core {

/// A read position in a spec. Skips spaces between tokens. The text must outlive the cursor and the returned views.
class TextCursor {
 public:
  /// `kind` is the kind of spec in error messages: "hook", "codec", "optimizer".
  TextCursor(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  /// Consumes `c` if it is the next character. Returns true if consumed.
  bool accept(char c);
  /// Consumes and returns letters, digits and underscores; empty if there are none.
  std::string_view word();
  /// Consumes everything up to a comma, parenthesis or bar, and returns it without surrounding spaces.
  std::string_view value();
  bool at_end();

  /// Throws InvalidArgument naming what is expected at the current position.
  [[noreturn]] void refuse(std::string_view expected) const { refuse_at(at_, expected); }
  /// Throws InvalidArgument naming what is expected instead of the last word or value.
  [[noreturn]] void refuse_last(std::string_view expected) const { refuse_at(last_, expected); }

 private:
  void skip_spaces();
  [[noreturn]] void refuse_at(std::size_t at, std::string_view expected) const;

  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0, last_ = 0;
};

}  // namespace hookline::core
