// Construction of codecs from options or specs, and inspection of messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <hookline/codec/codec.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// The options of a codec. `bits`, `block`, `range` and `rounding` apply to the integer format only.
struct CodecOptions {
  /// float16 (values out of range become infinity), bfloat16, or integers of `bits` bits with one scale per block.
  enum class Format : std::uint8_t { float16, bfloat16, integer };
  /// The range that the integers of a block cover: its minimum to its maximum (affine), or plus and minus its maximum
  /// magnitude (symmetric), which keeps zero exact and halves the overhead.
  enum class Range : std::uint8_t { affine, symmetric };
  /// The rounding of values to integers: to nearest, or randomly up or down so that the result is unbiased.
  enum class Rounding : std::uint8_t { nearest, stochastic };

  Format format = Format::integer;
  int bits = 8;              ///< 8 or 4
  std::int64_t block = 512;  ///< values per scale; 0: all values of a message
  Range range = Range::affine;
  Rounding rounding = Rounding::nearest;
  bool checksum = true;  ///< true if a checksum covers the whole message, false if decoding checks the header only

  friend bool operator==(const CodecOptions&, const CodecOptions&) = default;
};

/// Returns a codec. Throws InvalidArgument for invalid options.
HOOKLINE_EXPORT CodecPtr make_codec(const CodecOptions& options);

/// Returns the codec of a spec such as "fp16", "bf16", "int8(block=512)" or "int4(block=128, rounding=stochastic)".
/// Throws InvalidArgument with the position and the allowed values if the spec is invalid.
HOOKLINE_EXPORT CodecPtr make_codec(std::string_view spec);

/// The contents of a message header.
struct MessageInfo {
  CodecOptions options;
  std::size_t count = 0;
};

/// Reads the header of a message and verifies the message. Throws InvalidArgument if it is invalid or corrupt.
HOOKLINE_EXPORT MessageInfo describe_message(std::span<const std::byte> message);

}  // namespace hookline
