// make_codec: option checks and construction.
#include <hookline/codec/make_codec.hpp>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "codec/cast_codec.hpp"
#include "codec/codec_spec.hpp"
#include "codec/quantize_codec.hpp"

namespace hookline {
namespace {

using Format = CodecOptions::Format;
using Rounding = CodecOptions::Rounding;

void check(const CodecOptions& options) {
  if (options.format != Format::integer) {
    if (options.rounding != Rounding::nearest)
      throw InvalidArgument("make_codec: stochastic rounding requires the integer format");
    return;
  }
  if (options.bits != 8 && options.bits != 4)
    throw InvalidArgument(fmt::format("make_codec: bits must be 8 or 4, got {}", options.bits));
  if (options.block < 0) {
    throw InvalidArgument(
        fmt::format("make_codec: block must be positive, or 0 for one block per message, got {}", options.block));
  }
}

}  // namespace

CodecPtr make_codec(const CodecOptions& options) {
  check(options);
  if (options.format != Format::integer) return std::make_shared<codec::CastCodec>(options);
  return std::make_shared<codec::QuantizeCodec>(options);
}

CodecPtr make_codec(std::string_view spec) { return make_codec(codec::parse_codec_spec(spec)); }

}  // namespace hookline
