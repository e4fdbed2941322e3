// SpecCursor: the tokenizer of hook, codec and optimizer specs.
#pragma once

#include <string_view>

namespace hookline::core {

/// A read position in a spec. Skips spaces between tokens. The text must outlive the cursor and the returned views.
class SpecCursor {
 public:
  /// `kind` is the kind of spec in error messages: "hook", "codec", "optimizer".
  SpecCursor(std::string_view text, std::string_view kind) : text_(text), kind_(kind) {}

  /// Consumes `c` if it is the next character. Returns true if consumed.
  bool accept(char c);
  /// Consumes and returns letters, digits and underscores; empty if there are none.
  std::string_view word();
  /// Consumes everything up to a comma, parenthesis or bar, and returns it without surrounding spaces.
  std::string_view value();
  bool at_end();

  /// Throws InvalidArgument naming what is expected at the current position.
  [[noreturn]] void throw_expected(std::string_view expected) const { throw_expected_at(position_, expected); }
  /// Throws InvalidArgument naming what is expected instead of the last word or value.
  [[noreturn]] void throw_expected_at_last(std::string_view expected) const {
    throw_expected_at(last_position_, expected);
  }

 private:
  void skip_spaces();
  [[noreturn]] void throw_expected_at(std::size_t position, std::string_view expected) const;

  std::string_view text_;
  std::string_view kind_;
  std::size_t position_ = 0, last_position_ = 0;
};

}  // namespace hookline::core
