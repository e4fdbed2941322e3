// The format of encoded messages: writing and validation of headers.
#pragma once

#include <cstddef>
#include <span>

#include <hookline/codec/make_codec.hpp>

namespace hookline::codec {

// Layout of a message; numbers are little-endian:
//    0  "HKLC"
//    4  version                     5  format     6  bits     7  flags: 1 symmetric, 2 stochastic, 4 has a checksum
//    8  number of values, 8 bytes
//   16  block, 8 bytes; 0: all values
//   24  checksum of the rest of the message, 4 bytes; 0 if there is none
//   28  reserved, 4 bytes, 0
//   32  payload: scales and integers, or 16-bit values

/// Writes the header of a message whose payload is complete.
void write_header(std::span<std::byte> message, const CodecOptions& options, std::size_t count);

/// Throws InvalidArgument unless `message` is an intact message of `count` values that `codec` encoded. `options` are
/// the codec's options.
void check_message(std::span<const std::byte> message, const CodecOptions& options, std::size_t count,
                   const Codec& codec);

/// Throws InvalidArgument unless `message` has the size of a message of `count` values.
void check_buffer_sizes(std::span<const std::byte> message, std::size_t count, const Codec& codec);

/// As above, and unless there is one residual per value.
void check_buffer_sizes(std::span<const std::byte> message, std::span<const float> values,
                        std::span<const float> residual, const Codec& codec);

/// Returns the bytes after the header.
template <class Byte>
std::span<Byte> payload(std::span<Byte> message) {
  return message.subspan(kMessageHeaderBytes);
}

}  // namespace hookline::codec
