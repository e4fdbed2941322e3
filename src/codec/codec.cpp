// Default implementations of Codec.
#include <hookline/codec/codec.hpp>

#include <cmath>

#include "codec/message.hpp"
#include "kernel/scale.hpp"

namespace hookline {

Codec::~Codec() = default;

void Codec::encode_with_error(std::span<const float> values, std::span<float> error, std::span<std::byte> message,
                              const RoundingKey& key) const {
  codec::check_room(message, values, error, *this);
  for (std::size_t i = 0; i < values.size(); ++i) error[i] += values[i];
  encode(error, message, key);
  // Computes decoded - sum and negates it, which is exact.
  for (float& lost : error) lost = -lost;
  decode_add(message, error);
  for (float& lost : error) lost = std::isfinite(lost) ? 0.0f - lost : 0.0f;  // avoids -0
}

void Codec::decode_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                       std::span<float> values) const {
  decode(first, values);
  decode_add(second, values);
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  kernel::scale(DType::f32, bytes, bytes, values.size(), static_cast<double>(factor));
}

}  // namespace hookline
