// Parsing and formatting of codec specs.
#pragma once

#include <string>
#include <string_view>

#include <hookline/codec/make_codec.hpp>

namespace hookline::codec {

/// Returns the spec of these options: "int8(block=512, range=symmetric)". Omits options with the preset's value.
std::string name_of(const CodecOptions& options);

/// Parses a spec. Throws InvalidArgument with the position of the error and what is allowed there.
CodecOptions read_codec_text(std::string_view text);

}  // namespace hookline::codec
