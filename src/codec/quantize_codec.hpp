// QuantizeCodec: the int8 and int4 codecs.
#pragma once

#include <hookline/codec/make_codec.hpp>

#include "kernel/quantize.hpp"

namespace hookline::codec {

/// Quantizes values to integers of 8 or 4 bits; see kernel::QuantizationParams.
class QuantizeCodec final : public Codec {
 public:
  explicit QuantizeCodec(const CodecOptions& options);

  std::string name() const override;
  std::size_t block() const noexcept override { return static_cast<std::size_t>(options_.block); }
  std::size_t encoded_bytes(std::size_t count) const noexcept override;
  void encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey& key) const override;
  void encode_with_residual(std::span<const float> values, std::span<float> residual, std::span<std::byte> message,
                            const RoundingKey& key) const override;
  void decode(std::span<const std::byte> message, std::span<float> values) const override;
  void decode_add(std::span<const std::byte> message, std::span<float> values) const override;
  void decode_sum_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                      std::span<float> values) const override;

 private:
  void encode_payload(std::span<const float> values, float* residual, std::span<std::byte> message,
                      const RoundingKey& key) const;

  CodecOptions options_;
  kernel::QuantizationParams params_;
};

}  // namespace hookline::codec
