// CastCodec.
#include "codec/cast_codec.hpp"

#include "codec/codec_spec.hpp"
#include "codec/message.hpp"
#include "kernel/cast.hpp"

namespace hookline::codec {

CastCodec::CastCodec(const CodecOptions& options)
    : options_(options), dtype_(options.format == CodecOptions::Format::float16 ? DType::f16 : DType::bf16) {}

std::string CastCodec::name() const { return codec_spec(options_); }

std::size_t CastCodec::encoded_bytes(std::size_t count) const noexcept { return kMessageHeaderBytes + 2 * count; }

void CastCodec::encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey&) const {
  check_buffer_sizes(message, values.size(), *this);
  kernel::narrow(dtype_, values.data(), payload(message).data(), values.size());
  write_header(message, options_, values.size());
}

void CastCodec::encode_with_residual(std::span<const float> values, std::span<float> residual,
                                     std::span<std::byte> message, const RoundingKey&) const {
  check_buffer_sizes(message, values, residual, *this);
  kernel::narrow_with_residual(dtype_, values.data(), residual.data(), payload(message).data(), values.size());
  write_header(message, options_, values.size());
}

void CastCodec::decode(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::widen(dtype_, payload(message).data(), values.data(), values.size());
}

void CastCodec::decode_add(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::widen_add(dtype_, payload(message).data(), values.data(), values.size());
}

void CastCodec::decode_sum_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                               std::span<float> values) const {
  check_message(first, options_, values.size(), *this);
  check_message(second, options_, values.size(), *this);
  kernel::widen_sum_two(dtype_, payload(first).data(), payload(second).data(), factor, values.data(), values.size());
}

}  // namespace hookline::codec
