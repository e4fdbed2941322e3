// Makes codecs, and refuses what none is made of.
#include <hookline/codec/make_codec.hpp>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "codec/cast_codec.hpp"
#include "codec/codec_name.hpp"
#include "codec/quantise_codec.hpp"

namespace hookline {
namespace {

using Format = CodecOptions::Format;
using Rounding = CodecOptions::Rounding;

void check(const CodecOptions& options) {
  if (options.format != Format::integer) {
    if (options.rounding != Rounding::nearest)
      throw InvalidArgument("make_codec: float16 and bfloat16 round to nearest; stochastic rounding is for integers");
    return;
  }
  if (options.bits != 8 && options.bits != 4)
    throw InvalidArgument(fmt::format("make_codec: integers have 8 or 4 bits, not {}", options.bits));
  if (options.block < 0) {
    throw InvalidArgument(fmt::format(
        "make_codec: a block has 1 value or more, or 0 for all values of a message; it was {}", options.block));
  }
}

}  // namespace

CodecPtr make_codec(const CodecOptions& options) {
  check(options);
  if (options.format != Format::integer) return std::make_shared<codec::CastCodec>(options);
  return std::make_shared<codec::QuantiseCodec>(options);
}

CodecPtr make_codec(std::string_view text) { return make_codec(codec::read_codec_text(text)); }

}  // namespace hookline
