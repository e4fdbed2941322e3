// Parsing and formatting of codec specs.
#pragma once

#include <string>
#include <string_view>

#include <hookline/codec/make_codec.hpp>

namespace hookline::codec {

/// Returns the spec of these options: "int8(block=512, range=symmetric)". Omits options with the preset's value.
std::string codec_spec(const CodecOptions& options);

/// Parses a spec. Throws InvalidArgument with the position of the error and what is allowed there.
CodecOptions parse_codec_spec(std::string_view spec);

}  // namespace hookline::codec
