// Codec specs: a preset name, and the options that differ from the preset.
#include "codec/codec_name.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/text_cursor.hpp"

namespace hookline::codec {
namespace {

using Format = CodecOptions::Format;
using Range = CodecOptions::Range;
using Rounding = CodecOptions::Rounding;

struct Named {
  std::string_view name;
  CodecOptions options;
};

constexpr std::array<Named, 4> kNamed = {{
    {"fp16", {.format = Format::float16}},
    {"bf16", {.format = Format::bfloat16}},
    {"int8", {.bits = 8, .block = 512, .range = Range::affine}},
    {"int4", {.bits = 4, .block = 128, .range = Range::symmetric}},
}};

class Reader {
 public:
  explicit Reader(std::string_view text) : cursor_(text, "codec") {}

  CodecOptions read() {
    CodecOptions result = named();
    if (cursor_.accept('(') && !cursor_.accept(')')) {
      do option(result);
      while (cursor_.accept(','));
      if (!cursor_.accept(')')) cursor_.refuse("',' or ')'");
    }
    if (!cursor_.at_end()) cursor_.refuse("the end");
    return result;
  }

 private:
  CodecOptions named() {
    const std::string_view name = cursor_.word();
    for (const Named& known : kNamed) {
      if (known.name == name) return known.options;
    }
    cursor_.refuse_last("fp16, bf16, int8 or int4");
  }

  void option(CodecOptions& options) {
    const std::string_view name = cursor_.word();
    const bool integer = options.format == Format::integer;
    if (!integer && name != "checksum") cursor_.refuse_last("checksum (the only option of this codec)");
    if (std::ranges::find(given_, name) != given_.end()) cursor_.refuse_last("each option at most once");
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
      cursor_.refuse_last("block, range, rounding or checksum");
    }
  }

  void block(CodecOptions& options, std::string_view text) const {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.block);
    if (text == "tensor") options.block = 0;
    else if (error != std::errc() || end != text.data() + text.size() || options.block < 0)
      cursor_.refuse_last("a whole number or 'tensor'");
  }

  template <class T>
  T choose(std::array<std::string_view, 2> words) {
    const std::string_view given = value();
    if (given != words[0] && given != words[1]) cursor_.refuse_last(fmt::format("{} or {}", words[0], words[1]));
    return static_cast<T>(given == words[1]);
  }

  std::string_view value() {
    if (!cursor_.accept('=')) cursor_.refuse("'='");
    return cursor_.value();
  }

  core::TextCursor cursor_;
  std::vector<std::string_view> given_;
};

}  // namespace

std::string name_of(const CodecOptions& options) {
  const bool integer = options.format == Format::integer;
  const Named& known = *std::ranges::find_if(kNamed, [&](const Named& named) {
    return named.options.format == options.format && (!integer || named.options.bits == options.bits);
  });
  std::vector<std::string> words;
  if (integer) {
    words.push_back(options.block ? fmt::format("block={}", options.block) : "block=tensor");
    if (options.range != known.options.range)
      words.emplace_back(options.range == Range::affine ? "range=affine" : "range=symmetric");
    if (options.rounding == Rounding::stochastic) words.emplace_back("rounding=stochastic");
  }
  if (!options.checksum) words.emplace_back("checksum=false");
  return words.empty() ? std::string(known.name) : fmt::format("{}({})", known.name, fmt::join(words, ", "));
}

CodecOptions read_codec_text(std::string_view text) { return Reader(text).read(); }

}  // namespace hookline::codec
