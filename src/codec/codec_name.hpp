// Options of codecs as texts, and texts as options.
#pragma once

#include <string>
#include <string_view>

#include <hookline/codec/make_codec.hpp>

namespace hookline::codec {

/// The text that reads as these options, which make_codec takes: "int8(block=512, range=symmetric)". What the name
/// implies is left out.
std::string name_of(const CodecOptions& options);

/// The options of a text: a name and options in parentheses. Throws InvalidArgument naming the place where something
/// else was expected, and what is allowed there.
CodecOptions read_codec_text(std::string_view text);

}  // namespace hookline::codec
