// A place in a short text that is read from left to right: what the notations of hooks, codecs and optimizers share.
#pragma once

#include <string_view>

namespace hookline::core {

/// Spaces count for nothing between words. The text must outlive the cursor and what it returns.
class TextCursor {
 public:
  /// `what` the text is of, for errors.
  TextCursor(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  /// Passes the character if it is the next one.
  bool accept(char c);
  /// Passes letters, digits and underscores; empty where there are none.
  std::string_view word();
  /// Passes everything up to a comma, a parenthesis or a bar; without the spaces around it.
  std::string_view value();
  bool at_end();

  /// Throws InvalidArgument saying what was expected here, and what there is.
  [[noreturn]] void refuse(std::string_view expected) const { refuse_at(at_, expected); }
  /// The same at the beginning of the last word or value.
  [[noreturn]] void refuse_last(std::string_view expected) const { refuse_at(last_, expected); }

 private:
  void skip_spaces();
  [[noreturn]] void refuse_at(std::size_t at, std::string_view expected) const;

  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0, last_ = 0;
};

}  // namespace hookline::core
