// The codecs that there are, by options and by text, and the options that a message was encoded with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <hookline/codec/codec.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// How values are packed. The members after `format` but for `checksum` are for integers alone.
struct CodecOptions {
  /// Half precision (beyond its range: infinity), bfloat16, or integers of `bits` bits with a scale for each block.
  enum class Format : std::uint8_t { float16, bfloat16, integer };
  /// The range that a block's integers are spread over: from its least to its greatest value, or between plus and minus
  /// the greatest magnitude, where zero stays zero and half of the overhead is saved.
  enum class Range : std::uint8_t { affine, symmetric };
  /// To the nearest integer, or up with the probability that makes the mean right.
  enum class Rounding : std::uint8_t { nearest, stochastic };

  Format format = Format::integer;
  int bits = 8;              ///< 8 or 4
  std::int64_t block = 512;  ///< values that share a scale; 0: all values of a message
  Range range = Range::affine;
  Rounding rounding = Rounding::nearest;
  bool checksum = true;  ///< whether decoding finds every damage, or only one of the header

  friend bool operator==(const CodecOptions&, const CodecOptions&) = default;
};

/// InvalidArgument for options that make no sense, saying what is allowed.
HOOKLINE_EXPORT CodecPtr make_codec(const CodecOptions& options);

/// The codec of a text such as "fp16", "bf16", "int8(block=512)" or "int4(block=128, rounding=stochastic)".
/// InvalidArgument for anything else, saying where and what is allowed.
HOOKLINE_EXPORT CodecPtr make_codec(std::string_view text);

/// What a message says of itself.
struct MessageInfo {
  CodecOptions options;
  std::size_t count = 0;
};

/// Reads and checks all of a message but its values. InvalidArgument for bytes that are no message, or damaged ones.
HOOKLINE_EXPORT MessageInfo describe_message(std::span<const std::byte> message);

}  // namespace hookline
