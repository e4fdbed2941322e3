// Keeps what codecs lose, and turns it into bytes and back.
#include <hookline/codec/error_feedback.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "kernel/checksum.hpp"
#include "kernel/squared_norm.hpp"

namespace hookline {
namespace {

// Saved are this text, which names version, codec and places; the errors; and a checksum of both.
std::string title(const Codec& codec, std::size_t first, std::size_t count) {
  return fmt::format("hookline error feedback 1: {} of places {} to {}\n", codec.name(), first, first + count);
}

std::uint32_t checksum_of(std::span<const std::byte> bytes) { return kernel::checksum(bytes.data(), bytes.size(), 0); }

}  // namespace

ErrorFeedback::ErrorFeedback(CodecPtr codec, std::size_t count, std::size_t first)
    : codec_(std::move(codec)), first_(first), error_(count) {
  if (!codec_) throw InvalidArgument("ErrorFeedback needs a codec");
}

void ErrorFeedback::encode(std::span<const float> values, std::span<std::byte> message, const RoundingKey& key) {
  const std::uint64_t at = key.first - first_;
  if (key.first < first_ || at > error_.size() || values.size() > error_.size() - at) {
    throw InvalidArgument(fmt::format("ErrorFeedback: {} values from place {} on do not lie within {} to {}",
                                      values.size(), key.first, first_, first_ + error_.size()));
  }
  codec_->encode_with_error(values, std::span(error_).subspan(at, values.size()), message, key);
}

double ErrorFeedback::norm() const {
  const auto bytes = std::as_bytes(std::span(error_));
  return std::sqrt(kernel::sum_of_squares_on(kernel::best_target(), DType::f32, bytes.data(), error_.size()));
}

void ErrorFeedback::reset() { error_.assign(error_.size(), 0.0f); }

std::vector<std::byte> ErrorFeedback::save() const {
  const std::string name = title(*codec_, first_, error_.size());
  std::vector<std::byte> bytes;
  bytes.reserve(name.size() + error_.size() * sizeof(float) + 4);
  const auto append = [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); };
  append(std::as_bytes(std::span(name)));
  append(std::as_bytes(std::span(error_)));
  const std::uint32_t sum = checksum_of(bytes);
  append(std::as_bytes(std::span(&sum, 1)));
  return bytes;
}

void ErrorFeedback::load(std::span<const std::byte> bytes) {
  const std::string name = title(*codec_, first_, error_.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view found = text.substr(0, text.find('\n') + 1);
  if (found != name) {
    constexpr std::string_view kOurs = "hookline error feedback ";
    if (!found.starts_with(kOurs))
      throw InvalidArgument("ErrorFeedback: these bytes were not saved by an ErrorFeedback");
    throw InvalidArgument(fmt::format("ErrorFeedback: these bytes are '{}', and here is '{}'",
                                      found.substr(0, std::min<std::size_t>(found.size() - 1, 200)),
                                      name.substr(0, name.size() - 1)));
  }
  const std::size_t size = error_.size() * sizeof(float);
  std::uint32_t sum = 0;
  if (bytes.size() == name.size() + size + 4) std::memcpy(&sum, &bytes[name.size() + size], 4);
  if (bytes.size() != name.size() + size + 4 || sum != checksum_of(bytes.first(name.size() + size))) {
    throw InvalidArgument(
        fmt::format("ErrorFeedback: the bytes that were saved of {} errors are damaged", error_.size()));
  }
  if (size) std::memcpy(error_.data(), &bytes[name.size()], size);
}

}  // namespace hookline
