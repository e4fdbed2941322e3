// What a codec does unless it knows better.
#include <hookline/codec/codec.hpp>

#include <cmath>

namespace hookline {

Codec::~Codec() = default;

void Codec::encode_keeping_error(std::span<float> values, std::span<std::byte> message, const RoundingKey& key) const {
  encode(values, message, key);
  // decoded - value, negated: both are exact.
  for (float& value : values) value = -value;
  decode_add(message, values);
  for (float& value : values) value = std::isfinite(value) ? -value : 0.0f;
}

}  // namespace hookline
