// QuantizeCodec.
#include "codec/quantize_codec.hpp"

#include "codec/codec_spec.hpp"
#include "codec/message.hpp"

namespace hookline::codec {

QuantizeCodec::QuantizeCodec(const CodecOptions& options)
    : options_(options),
      params_{.bits = options.bits,
              .symmetric = options.range == CodecOptions::Range::symmetric,
              .block = static_cast<std::size_t>(options.block)} {}

std::string QuantizeCodec::name() const { return codec_spec(options_); }

std::size_t QuantizeCodec::encoded_bytes(std::size_t count) const noexcept {
  return kMessageHeaderBytes + params_.bytes(count);
}

void QuantizeCodec::encode_payload(std::span<const float> values, float* residual, std::span<std::byte> message,
                                   const RoundingKey& key) const {
  const bool stochastic = options_.rounding == CodecOptions::Rounding::stochastic;
  const kernel::CounterRng rng = kernel::make_counter_rng(key.seed, key.step, key.bucket, key.rank, key.first_index);
  kernel::quantize(params_, values.data(), residual, payload(message).data(), values.size(),
                   stochastic ? &rng : nullptr);
  write_header(message, options_, values.size());
}

void QuantizeCodec::encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey& key) const {
  check_buffer_sizes(message, values.size(), *this);
  encode_payload(values, nullptr, message, key);
}

void QuantizeCodec::encode_with_residual(std::span<const float> values, std::span<float> residual,
                                         std::span<std::byte> message, const RoundingKey& key) const {
  check_buffer_sizes(message, values, residual, *this);
  encode_payload(values, residual.data(), message, key);
}

void QuantizeCodec::decode(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::dequantize(params_, payload(message).data(), values.data(), values.size());
}

void QuantizeCodec::decode_add(std::span<const std::byte> message, std::span<float> values) const {
  check_message(message, options_, values.size(), *this);
  kernel::dequantize_add(params_, payload(message).data(), values.data(), values.size());
}

void QuantizeCodec::decode_sum_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                                   std::span<float> values) const {
  check_message(first, options_, values.size(), *this);
  check_message(second, options_, values.size(), *this);
  kernel::dequantize_sum_two(params_, payload(first).data(), payload(second).data(), factor, values.data(),
                             values.size());
}

}  // namespace hookline::codec
