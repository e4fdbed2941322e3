// CastCodec: the fp16 and bf16 codecs.
#pragma once

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/dtype.hpp>

namespace hookline::codec {

/// Casts values to 16 bits, rounding to nearest even.
class CastCodec final : public Codec {
 public:
  explicit CastCodec(const CodecOptions& options);

  std::string name() const override;
  std::size_t block() const noexcept override { return 1; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override;
  void encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey& key) const override;
  void encode_with_residual(std::span<const float> values, std::span<float> residual, std::span<std::byte> message,
                            const RoundingKey& key) const override;
  void decode(std::span<const std::byte> message, std::span<float> values) const override;
  void decode_add(std::span<const std::byte> message, std::span<float> values) const override;
  void decode_sum_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                      std::span<float> values) const override;

 private:
  CodecOptions options_;
  DType dtype_;
};

}  // namespace hookline::codec
