// The codec seam: packs float32 values into fewer bytes, as messages that describe themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <hookline/core/export.hpp>

namespace hookline {

/// What stochastic rounding draws its numbers by: the same key gives the same bits, on every processor. Rounding to
/// nearest does not look at it.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t bucket = 0;
  std::uint64_t rank = 0;
  /// The place in the bucket of the first value that is encoded, so that slices draw different numbers.
  std::uint64_t first = 0;
};

/// A message begins with this many bytes that say what it is.
inline constexpr std::size_t kMessageHeader = 32;

/// Packs float32 values into bytes and back. Values of other dtypes are cast to float32 before.
///
/// A codec has no state: any number of threads may use one at the same time. Every call makes or reads one message, a
/// header of kMessageHeader bytes and what the values became; a slice of a bucket is a message of its own. Neither
/// message nor values need any alignment beyond their own type's, they must not overlap, and nothing is allocated.
/// The bytes of a message, and the values that come of it, are the same on every processor.
///
/// A block (see CodecOptions) with a NaN or an infinity in it decodes to NaN or infinities, never to wrong numbers.
class HOOKLINE_EXPORT Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec();

  /// What make_codec makes such a codec of: "int4(block=128)".
  virtual std::string name() const = 0;

  /// How many values share a scale, so that values can be cut into messages there: 1 for casts, 0 where all of a
  /// message do.
  virtual std::size_t block() const noexcept = 0;

  /// The exact size of the message of `count` values.
  virtual std::size_t encoded_bytes(std::size_t count) const noexcept = 0;

  /// Writes the message of `values`, whose size is encoded_bytes(values.size()); InvalidArgument for any other size.
  virtual void encode(std::span<const float> values, std::span<std::byte> message,
                      const RoundingKey& key = {}) const = 0;

  /// Encodes values + error, and puts in the place of each error what was lost this time: the sum less what it decodes
  /// to, or 0 where that is no finite number. Derived classes may do it all in one pass.
  virtual void encode_with_error(std::span<const float> values, std::span<float> error, std::span<std::byte> message,
                                 const RoundingKey& key = {}) const;

  /// Unpacks a message of values.size() values. InvalidArgument, before any value is changed, for bytes that are no
  /// message of this codec and this many values, or were damaged.
  virtual void decode(std::span<const std::byte> message, std::span<float> values) const = 0;

  /// Adds what decode would give to `values`, in float32. A sum that is no number is the one quiet NaN.
  virtual void decode_add(std::span<const std::byte> message, std::span<float> values) const = 0;

  /// What two messages decode to, added and multiplied by `factor`, in float32: the bits of decode, decode_add and a
  /// multiplication. InvalidArgument as there; the values may have changed then. Derived classes may do it in one pass.
  virtual void decode_two(std::span<const std::byte> first, std::span<const std::byte> second, float factor,
                          std::span<float> values) const;
};

/// Codecs are shared, since they have no state.
using CodecPtr = std::shared_ptr<const Codec>;

}  // namespace hookline
