// Error feedback: what a codec lost of the values of one step is added to those of the next.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hookline/codec/codec.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// A codec with a memory of what it lost, for a stretch of a bucket: all of it where a rank encodes what it sends, the
/// rank's own slice where it encodes what all will get. (Karimireddy et al., "Error Feedback Fixes SignSGD", 2019.)
///
/// What a block with a NaN or an infinity lost is forgotten, so that it does not come back in later steps. Threads may
/// encode different stretches at the same time; everything else needs the object for itself.
class HOOKLINE_EXPORT ErrorFeedback {
 public:
  /// For the places from `first` to `first` + `count` of a bucket. The memory is zero at the beginning.
  ErrorFeedback(CodecPtr codec, std::size_t count, std::size_t first = 0);

  const CodecPtr& codec() const noexcept { return codec_; }

  /// Writes the message of values + what was lost at their places, which begin at key.first, and keeps what is lost
  /// now. InvalidArgument as for Codec::encode, and for places outside.
  void encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey& key);

  /// What is kept, for each place.
  std::span<const float> error() const noexcept { return error_; }
  /// The Euclidean norm of what is kept.
  double norm() const;
  /// Forgets it all.
  void reset();

  /// Everything, as bytes that `load` takes in another run.
  std::vector<std::byte> save() const;
  /// InvalidArgument, before anything is changed, for bytes that are damaged or come from another codec or other
  /// places, naming the difference.
  void load(std::span<const std::byte> bytes);

 private:
  CodecPtr codec_;
  std::size_t first_;
  std::vector<float> error_;
};

}  // namespace hookline
