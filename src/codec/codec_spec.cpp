// Codec specs: a preset name, and the options that differ from the preset.
#include "codec/codec_spec.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/spec_cursor.hpp"

namespace hookline::codec {
namespace {

using Format = CodecOptions::Format;
using Range = CodecOptions::Range;
using Rounding = CodecOptions::Rounding;

struct Preset {
  std::string_view name;
  CodecOptions options;
};

constexpr std::array<Preset, 4> kPresets = {{
    {"fp16", {.format = Format::float16}},
    {"bf16", {.format = Format::bfloat16}},
    {"int8", {.bits = 8, .block = 512, .range = Range::affine}},
    {"int4", {.bits = 4, .block = 128, .range = Range::symmetric}},
}};

class SpecParser {
 public:
  explicit SpecParser(std::string_view spec) : cursor_(spec, "codec") {}

  CodecOptions parse() {
    CodecOptions result = parse_name();
    if (cursor_.accept('(') && !cursor_.accept(')')) {
      do parse_option(result);
      while (cursor_.accept(','));
      if (!cursor_.accept(')')) cursor_.throw_expected("',' or ')'");
    }
    if (!cursor_.at_end()) cursor_.throw_expected("the end");
    return result;
  }

 private:
  CodecOptions parse_name() {
    const std::string_view name = cursor_.word();
    for (const Preset& known : kPresets) {
      if (known.name == name) return known.options;
    }
    cursor_.throw_expected_at_last("fp16, bf16, int8 or int4");
  }

  void parse_option(CodecOptions& options) {
    const std::string_view name = cursor_.word();
    const bool integer = options.format == Format::integer;
    if (!integer && name != "checksum") cursor_.throw_expected_at_last("checksum (the only option of this codec)");
    if (std::ranges::find(seen_options_, name) != seen_options_.end())
      cursor_.throw_expected_at_last("each option at most once");
    seen_options_.push_back(name);
    if (name == "block") {
      parse_block(options, parse_value());
    } else if (name == "range") {
      options.range = parse_choice<Range>({"affine", "symmetric"});
    } else if (name == "rounding") {
      options.rounding = parse_choice<Rounding>({"nearest", "stochastic"});
    } else if (name == "checksum") {
      options.checksum = parse_choice<bool>({"false", "true"});
    } else {
      cursor_.throw_expected_at_last("block, range, rounding or checksum");
    }
  }

  void parse_block(CodecOptions& options, std::string_view text) const {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), options.block);
    if (text == "tensor") options.block = 0;
    else if (error != std::errc() || end != text.data() + text.size() || options.block < 0)
      cursor_.throw_expected_at_last("a whole number or 'tensor'");
  }

  template <class T>
  T parse_choice(std::array<std::string_view, 2> words) {
    const std::string_view choice = parse_value();
    if (choice != words[0] && choice != words[1])
      cursor_.throw_expected_at_last(fmt::format("{} or {}", words[0], words[1]));
    return static_cast<T>(choice == words[1]);
  }

  std::string_view parse_value() {
    if (!cursor_.accept('=')) cursor_.throw_expected("'='");
    return cursor_.value();
  }

  core::SpecCursor cursor_;
  std::vector<std::string_view> seen_options_;
};

}  // namespace

std::string codec_spec(const CodecOptions& options) {
  const bool integer = options.format == Format::integer;
  const Preset& known = *std::ranges::find_if(kPresets, [&](const Preset& named) {
    return named.options.format == options.format && (!integer || named.options.bits == options.bits);
  });
  std::vector<std::string> terms;
  if (integer) {
    terms.push_back(options.block ? fmt::format("block={}", options.block) : "block=tensor");
    if (options.range != known.options.range)
      terms.emplace_back(options.range == Range::affine ? "range=affine" : "range=symmetric");
    if (options.rounding == Rounding::stochastic) terms.emplace_back("rounding=stochastic");
  }
  if (!options.checksum) terms.emplace_back("checksum=false");
  return terms.empty() ? std::string(known.name) : fmt::format("{}({})", known.name, fmt::join(terms, ", "));
}

CodecOptions parse_codec_spec(std::string_view spec) { return SpecParser(spec).parse(); }

}  // namespace hookline::codec
