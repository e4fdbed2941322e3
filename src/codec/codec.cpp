// Default implementations of Codec.
#include <hookline/codec/codec.hpp>

#include <cmath>

#include "codec/message.hpp"
#include "kernel/scale.hpp"

namespace hookline {

Codec::~Codec() = default;

void Codec::encode_with_residual(std::span<const float> values, std::span<float> residual, std::span<std::byte> message,
                                 const RoundingKey& key) const {
  codec::check_buffer_sizes(message, values, residual, *this);
  for (std::size_t i = 0; i < values.size(); ++i) residual[i] += values[i];
  encode(residual, message, key);
  // Computes decoded - sum and negates it, which is exact.
  for (float& value : residual) value = -value;
  decode_add(message, residual);
  for (float& value : residual) value = std::isfinite(value) ? 0.0f - value : 0.0f;  // avoids -0
}

void Codec::decode_sum_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                           std::span<float> values) const {
  decode(first, values);
  decode_add(second, values);
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  kernel::scale(DType::f32, bytes, bytes, values.size(), static_cast<double>(factor));
}

}  // namespace hookline
