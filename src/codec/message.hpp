// The header of an encoded message: how it is written, and how every byte of it is checked.
#pragma once

#include <cstddef>
#include <span>

#include <hookline/codec/make_codec.hpp>

namespace hookline::codec {

// The layout, numbers with their low byte first:
//    0  "HKLC"
//    4  version                     5  format     6  bits     7  flags: 1 symmetric, 2 stochastic, 4 has a checksum
//    8  number of values, 8 bytes
//   16  block, 8 bytes; 0: all values
//   24  checksum of everything else, 4 bytes; 0 where there is none
//   28  0, 4 bytes
// Then the scales and the integers, or the 16-bit values.

/// Writes the header of a message whose other bytes are there already.
void seal(std::span<std::byte> message, const CodecOptions& options, std::size_t count);

/// Throws InvalidArgument unless `message` is a whole and undamaged one of `codec`, which has these options, and of
/// `count` values.
void check_message(std::span<const std::byte> message, const CodecOptions& options, std::size_t count,
                   const Codec& codec);

/// Throws InvalidArgument where the memory for a message has not the size of one.
void check_room(std::span<const std::byte> message, std::size_t count, const Codec& codec);

/// The same, and where there is not one error for each value.
void check_room(std::span<const std::byte> message, std::span<const float> values, std::span<const float> error,
                const Codec& codec);

/// The bytes behind the header.
template <class Byte>
std::span<Byte> body(std::span<Byte> message) {
  return message.subspan(kMessageHeader);
}

}  // namespace hookline::codec
