// Writing and validation of message headers.
#include "codec/message.hpp"

#include <array>
#include <cstring>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "kernel/checksum.hpp"

namespace hookline::codec {
namespace {

using Header = std::array<std::byte, kMessageHeaderBytes>;
using Format = CodecOptions::Format;

constexpr std::array<std::byte, 4> kMagic = {std::byte{'H'}, std::byte{'K'}, std::byte{'L'}, std::byte{'C'}};
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kSymmetric = 1, kStochastic = 2, kChecksum = 4;
constexpr std::size_t kChecksumOffset = 24;
constexpr std::array<std::string_view, 3> kFormats = {"float16", "bfloat16",
                                                      "integer"};  ///< as in CodecOptions::Format

template <class T>
void put(Header& header, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) header[offset + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T get(const Header& header, std::size_t offset) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(static_cast<T>(header[offset + i]) << (8 * i)));
  return value;
}

// The caller in error messages. Called on errors only, since it allocates.
std::string caller_name(const Codec* codec) { return codec ? codec->name() : "describe_message"; }

// Copies the header: a peer may write to the memory concurrently.
Header read_header(std::span<const std::byte> message, const Codec* codec) {
  if (message.size() < kMessageHeaderBytes) {
    throw InvalidArgument(fmt::format("{}: truncated message: expected at least {} bytes, got {}", caller_name(codec),
                                      kMessageHeaderBytes, message.size()));
  }
  Header header;
  std::memcpy(header.data(), message.data(), header.size());
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0)
    throw InvalidArgument(
        fmt::format("{}: these bytes are not an encoded message: they do not start with HKLC", caller_name(codec)));
  if (const auto version = get<std::uint8_t>(header, 4); version != kVersion) {
    throw InvalidArgument(
        fmt::format("{}: unsupported message version: expected {}, got {}", caller_name(codec), kVersion, version));
  }
  return header;
}

std::uint32_t checksum_of(std::span<const std::byte> message, Header header) {
  put<std::uint32_t>(header, kChecksumOffset, 0);
  const std::uint32_t seed = kernel::checksum(header.data(), header.size(), 0);
  const std::span<const std::byte> rest = payload(message);
  return kernel::checksum(rest.data(), rest.size(), seed);
}

/// The fields of a header except its checksum, not validated.
struct Fields {
  std::uint8_t format;
  std::uint8_t bits;
  std::uint8_t flags;
  std::uint64_t count;
  std::uint64_t block;
};

Fields parse_fields(const Header& header) {
  return {.format = get<std::uint8_t>(header, 5),
          .bits = get<std::uint8_t>(header, 6),
          .flags = get<std::uint8_t>(header, 7),
          .count = get<std::uint64_t>(header, 8),
          .block = get<std::uint64_t>(header, 16)};
}

std::string describe(const Fields& f) {
  return fmt::format("{} values as {}, {} bits, block {}{}{}{}", f.count,
                     f.format < kFormats.size() ? kFormats[f.format] : "unknown", f.bits, f.block,
                     f.flags & kSymmetric ? ", symmetric" : "", f.flags & kStochastic ? ", stochastic" : "",
                     f.flags & kChecksum ? ", with a checksum" : "");
}

/// Returns the header without its checksum. Sets bits to 16 and block to 0 for casts.
Header make_header(const CodecOptions& options, std::size_t count) {
  const bool integer = options.format == Format::integer;
  std::uint8_t flags = options.checksum ? kChecksum : 0;
  if (integer && options.range == CodecOptions::Range::symmetric) flags |= kSymmetric;
  if (integer && options.rounding == CodecOptions::Rounding::stochastic) flags |= kStochastic;
  Header header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  put<std::uint8_t>(header, 4, kVersion);
  put<std::uint8_t>(header, 5, static_cast<std::uint8_t>(options.format));
  put<std::uint8_t>(header, 6, static_cast<std::uint8_t>(integer ? options.bits : 16));
  put<std::uint8_t>(header, 7, flags);
  put<std::uint64_t>(header, 8, count);
  put<std::uint64_t>(header, 16, integer ? static_cast<std::uint64_t>(options.block) : 0);
  return header;
}

}  // namespace

void write_header(std::span<std::byte> message, const CodecOptions& options, std::size_t count) {
  Header header = make_header(options, count);
  if (options.checksum) put(header, kChecksumOffset, checksum_of(message, header));
  std::memcpy(message.data(), header.data(), header.size());
}

void check_message(std::span<const std::byte> message, const CodecOptions& options, std::size_t count,
                   const Codec& codec) {
  const Header header = read_header(message, &codec);
  Header expected = make_header(options, count);
  std::memcpy(&expected[kChecksumOffset], &header[kChecksumOffset], 4);
  if (!options.checksum) put<std::uint32_t>(expected, kChecksumOffset, 0);
  if (header != expected) {
    throw InvalidArgument(fmt::format("{}: the message does not match: expected {}, got {}", codec.name(),
                                      describe(parse_fields(expected)), describe(parse_fields(header))));
  }
  if (message.size() != codec.encoded_bytes(count)) {
    throw InvalidArgument(fmt::format("{}: wrong size for a message of {} values: expected {} bytes, got {}",
                                      codec.name(), count, codec.encoded_bytes(count), message.size()));
  }
  if (options.checksum && checksum_of(message, header) != get<std::uint32_t>(header, kChecksumOffset)) {
    throw InvalidArgument(fmt::format("{}: the message of {} bytes is corrupt: its checksum does not match",
                                      codec.name(), message.size()));
  }
}

void check_buffer_sizes(std::span<const std::byte> message, std::size_t count, const Codec& codec) {
  if (message.size() == codec.encoded_bytes(count)) return;
  throw InvalidArgument(fmt::format("{}: wrong buffer size for a message of {} values: expected {} bytes, got {}",
                                    codec.name(), count, codec.encoded_bytes(count), message.size()));
}

void check_buffer_sizes(std::span<const std::byte> message, std::span<const float> values,
                        std::span<const float> residual, const Codec& codec) {
  check_buffer_sizes(message, values.size(), codec);
  if (values.size() == residual.size()) return;
  throw InvalidArgument(
      fmt::format("{}: expected {} residuals, one per value, got {}", codec.name(), values.size(), residual.size()));
}

}  // namespace hookline::codec

namespace hookline {

MessageInfo describe_message(std::span<const std::byte> message) {
  using namespace codec;
  const Fields fields = parse_fields(read_header(message, nullptr));
  // Every value takes at least 4 bits, which bounds the plausible count.
  const bool integer = fields.format == static_cast<std::uint8_t>(Format::integer);
  if (fields.format >= kFormats.size() || (integer && fields.bits != 8 && fields.bits != 4) ||
      fields.count > message.size() * 2 ||
      fields.block > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw InvalidArgument(
        fmt::format("describe_message: invalid header for {} bytes: {}", message.size(), describe(fields)));
  }
  MessageInfo info;
  info.count = static_cast<std::size_t>(fields.count);
  info.options.format = static_cast<Format>(fields.format);
  info.options.checksum = fields.flags & kChecksum;
  if (info.options.format == Format::integer) {
    info.options.bits = fields.bits;
    info.options.block = static_cast<std::int64_t>(fields.block);
    if (fields.flags & kSymmetric) info.options.range = CodecOptions::Range::symmetric;
    if (fields.flags & kStochastic) info.options.rounding = CodecOptions::Rounding::stochastic;
  }
  check_message(message, info.options, info.count, *make_codec(info.options));
  return info;
}

}  // namespace hookline
