// CastCodec.
#include "codec/cast_codec.hpp"

#include "codec/codec_name.hpp"
#include "codec/message.hpp"
#include "kernel/cast.hpp"

namespace hookline::codec {

CastCodec::CastCodec(const CodecOptions& options)
    : options_(options), dtype_(options.format == CodecOptions::Format::float16 ? DType::f16 : DType::bf16) {}

std::string CastCodec::name() const { return name_of(options_); }

std::size_t CastCodec::encoded_bytes(std::size_t count) const noexcept { return kMessageHeader + 2 * count; }

void CastCodec::encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey&) const {
  check_room(message, values.size(), *this);
  kernel::narrow(dtype_, values.data(), body(message).data(), values.size());
  seal(message, options_, values.size());
}

void CastCodec::encode_with_error(std::span<const float> values, std::span<float> error, std::span<std::byte> message,
                                  const RoundingKey&) const {
  check_room(message, values, error, *this);
  kernel::narrow_with_error(dtype_, values.data(), error.data(), body(message).data(), values.size());
  seal(message, options_, values.size());
}

void CastCodec::decode(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::widen(dtype_, body(message).data(), values.data(), values.size());
}

void CastCodec::decode_add(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::widen_add(dtype_, body(message).data(), values.data(), values.size());
}

void CastCodec::decode_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                           std::span<float> values) const {
  check_message(first, options_, values.size(), *this);
  check_message(second, options_, values.size(), *this);
  kernel::widen_two(dtype_, body(first).data(), body(second).data(), factor, values.data(), values.size());
}

}  // namespace hookline::codec
