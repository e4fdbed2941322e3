// Codec: the interface of lossy compression of float32 values into self-describing messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <hookline/core/export.hpp>

namespace hookline {

/// The key of the random numbers for stochastic rounding. Equal keys give equal bits on every processor. Ignored when
/// rounding to nearest.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t bucket = 0;
  std::uint64_t rank = 0;
  /// The index in the bucket of the first encoded value, so that slices use different random numbers.
  std::uint64_t first_index = 0;
};

/// The size of a message header in bytes.
inline constexpr std::size_t kMessageHeaderBytes = 32;

/// Encodes float32 values into messages and decodes them. Callers cast other dtypes to float32 first.
///
/// A codec is stateless and thread-safe. Every call writes or reads one message: a header of kMessageHeaderBytes bytes
/// and the encoded values. Each slice of a bucket is a separate message. Messages and values need only the alignment of
/// their type and must not overlap. No call allocates memory. Messages and decoded values are bitwise identical on
/// every processor.
///
/// A block (see CodecOptions) that contains NaN or infinity decodes to NaN or infinities, never to wrong numbers.
class HOOKLINE_EXPORT Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec();

  /// Returns the spec that make_codec accepts: "int4(block=128)".
  virtual std::string name() const = 0;

  /// Returns the number of values that share a scale; messages can be split at its multiples. 1 for casts, 0 if all
  /// values of a message share one.
  virtual std::size_t block() const noexcept = 0;

  /// Returns the exact size in bytes of a message of `count` values.
  virtual std::size_t encoded_bytes(std::size_t count) const noexcept = 0;

  /// Encodes `values`. Throws InvalidArgument unless message.size() is encoded_bytes(values.size()).
  virtual void encode(std::span<const float> values, std::span<std::byte> message,
                      const RoundingKey& key = {}) const = 0;

  /// Encodes values + residual and replaces each residual by the new error: the sum minus its decoded value, or 0 if
  /// that is not finite. Derived classes may fuse the passes.
  virtual void encode_with_residual(std::span<const float> values, std::span<float> residual,
                                    std::span<std::byte> message, const RoundingKey& key = {}) const;

  /// Decodes a message of values.size() values. Throws InvalidArgument, before any value changes, unless `message` is
  /// an intact message of this codec with that many values.
  virtual void decode(std::span<const std::byte> message, std::span<float> values) const = 0;

  /// Decodes and adds to `values` in float32. A NaN sum is the canonical quiet NaN.
  virtual void decode_add(std::span<const std::byte> message, std::span<float> values) const = 0;

  /// Sets `values` to the sum of two decoded messages times `factor`, in float32. Bitwise equal to decode, decode_add
  /// and a multiplication. Throws InvalidArgument like decode, but the values may have changed. Derived classes may
  /// fuse the passes.
  virtual void decode_sum_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                              std::span<float> values) const;
};

/// A shared codec; codecs are immutable.
using CodecPtr = std::shared_ptr<const Codec>;

}  // namespace hookline
