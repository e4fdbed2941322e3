// The names of codecs: four words, and options where they differ from what the word stands for.
#include "codec/codec_name.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline::codec {
namespace {

using Format = CodecOptions::Format;
using Range = CodecOptions::Range;
using Rounding = CodecOptions::Rounding;

struct Named {
  std::string_view name;
  CodecOptions options;
};

constexpr std::array<Named, 7> kNamed = {{
    {"fp16", {.format = Format::float16}},
    {"bf16", {.format = Format::bfloat16}},
    {"int8", {.bits = 8, .block = 512, .range = Range::affine}},
    {"int4", {.bits = 4, .block = 128, .range = Range::symmetric}},
    {"float16", {.format = Format::float16}},
    {"half", {.format = Format::float16}},
    {"bfloat16", {.format = Format::bfloat16}},
}};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  CodecOptions read() {
    CodecOptions result = named();
    if (accept('(') && !accept(')')) {
      do option(result);
      while (accept(','));
      if (!accept(')')) refuse(at_, "',' or ')' was");
    }
    skip();
    if (at_ < text_.size()) refuse(at_, "the end was");
    return result;
  }

 private:
  CodecOptions named() {
    const std::string_view name = word();
    for (const Named& known : kNamed) {
      if (known.name == name) return known.options;
    }
    refuse(word_at_, "fp16, bf16, int8 or int4 was");
  }

  void option(CodecOptions& options) {
    const std::string_view name = word();
    const std::size_t name_at = word_at_;
    const bool integer = options.format == Format::integer;
    if (!integer && name != "checksum") refuse(name_at, "checksum, the only option of this codec, was");
    if (std::ranges::find(given_, name) != given_.end()) refuse(name_at, "an option that is not given already was");
    given_.push_back(name);
    if (name == "block") {
      block(options, value());
    } else if (name == "range") {
      options.range = choose<Range>({"affine", "symmetric"});
    } else if (name == "rounding") {
      options.rounding = choose<Rounding>({"nearest", "stochastic"});
    } else if (name == "checksum") {
      options.checksum = choose<bool>({"false", "true"});
    } else {
      refuse(name_at, "block, range, rounding or checksum was");
    }
  }

  void block(CodecOptions& options, std::string_view text) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.block);
    if (text == "tensor") options.block = 0;
    else if (error != std::errc() || end != text.data() + text.size() || options.block < 0)
      refuse(word_at_, "a whole number, or 'tensor' for one block, was");
  }

  template <class T>
  T choose(std::array<std::string_view, 2> words) {
    const std::string_view given = value();
    if (given != words[0] && given != words[1]) refuse(word_at_, fmt::format("{} or {} was", words[0], words[1]));
    return static_cast<T>(given == words[1]);
  }

  std::string_view value() {
    if (!accept('=')) refuse(at_, "'=' was");
    return word();
  }

  std::string_view word() {
    skip();
    word_at_ = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(word_at_, at_ - word_at_);
  }

  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }

  [[noreturn]] void refuse(std::size_t at, std::string_view expected) const {
    const std::string found = at < text_.size() ? fmt::format("'{}'", text_.substr(at, 20)) : "the end";
    throw InvalidArgument(fmt::format("the codec '{}' cannot be read: {} expected at character {}, not {}", text_,
                                      expected, at + 1, found));
  }

  std::string_view text_;
  std::size_t at_ = 0, word_at_ = 0;
  std::vector<std::string_view> given_;
};

}  // namespace

std::string name_of(const CodecOptions& options) {
  const bool integer = options.format == Format::integer;
  const auto known = std::ranges::find_if(kNamed, [&](const Named& named) {
    return named.options.format == options.format && (!integer || named.options.bits == options.bits);
  });
  const std::string_view name = known != kNamed.end() ? known->name : "unknown";
  std::vector<std::string> words;
  if (integer) {
    words.push_back(options.block ? fmt::format("block={}", options.block) : "block=tensor");
    if (known != kNamed.end() && options.range != known->options.range)
      words.emplace_back(options.range == Range::affine ? "range=affine" : "range=symmetric");
    if (options.rounding == Rounding::stochastic) words.emplace_back("rounding=stochastic");
  }
  if (!options.checksum) words.emplace_back("checksum=false");
  return words.empty() ? std::string(name) : fmt::format("{}({})", name, fmt::join(words, ", "));
}

CodecOptions read_codec_text(std::string_view text) { return Reader(text).read(); }

}  // namespace hookline::codec
