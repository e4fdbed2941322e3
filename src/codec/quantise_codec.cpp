// QuantizeCodec.
#include "codec/quantise_codec.hpp"

#include "codec/codec_name.hpp"
#include "codec/message.hpp"

namespace hookline::codec {

QuantiseCodec::QuantiseCodec(const CodecOptions& options)
    : options_(options),
      how_{.bits = options.bits,
           .symmetric = options.range == CodecOptions::Range::symmetric,
           .block = static_cast<std::size_t>(options.block)} {}

std::string QuantiseCodec::name() const { return name_of(options_); }

std::size_t QuantiseCodec::encoded_bytes(std::size_t count) const noexcept {
  return kMessageHeader + how_.bytes(count);
}

void QuantiseCodec::put(std::span<const float> values, float* error, std::span<std::byte> message,
                        const RoundingKey& key) const {
  const bool by_chance = options_.rounding == CodecOptions::Rounding::stochastic;
  const kernel::Draws draws = kernel::draws_of(key.seed, key.step, key.bucket, key.rank, key.first);
  kernel::quantise(how_, values.data(), error, body(message).data(), values.size(), by_chance ? &draws : nullptr);
  seal(message, options_, values.size());
}

void QuantiseCodec::encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey& key) const {
  check_room(message, values.size(), *this);
  put(values, nullptr, message, key);
}

void QuantiseCodec::encode_with_error(std::span<const float> values, std::span<float> error,
                                      std::span<std::byte> message, const RoundingKey& key) const {
  check_room(message, values, error, *this);
  put(values, error.data(), message, key);
}

void QuantiseCodec::decode(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::dequantise(how_, body(message).data(), values.data(), values.size());
}

void QuantiseCodec::decode_add(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::dequantise_add(how_, body(message).data(), values.data(), values.size());
}

void QuantiseCodec::decode_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                               std::span<float> values) const {
  check_message(first, options_, values.size(), *this);
  check_message(second, options_, values.size(), *this);
  kernel::dequantise_two(how_, body(first).data(), body(second).data(), factor, values.data(), values.size());
}

}  // namespace hookline::codec
