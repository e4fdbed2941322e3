// The header of a control message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::engine {

enum class MailKind : std::uint32_t {
  letter = 1,    ///< a send; the payload of a small one follows the envelope, a large one is sent as data
  received = 2,  ///< acknowledges the data of the send with this `data_sequence`
  left = 3,      ///< the sender leaves the group
  /// The sender's group failed. `dtype` is kPeerLost or 0. The payload is the ranks of the cause, `tag` of them, and
  /// the text.
  gave_up = 4,
};
inline constexpr std::uint32_t kPeerLost = 1;
inline constexpr MessageAddress kMailAddress{kMailChannel, 0};

struct Envelope {
  MailKind kind = MailKind::letter;
  std::int32_t tag = 0;
  std::uint32_t dtype = 0;
  std::uint32_t inlined = 0;  ///< payload bytes that follow the envelope
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;  ///< sequence of the first data message
};
static_assert(sizeof(Envelope) == 32);

inline constexpr std::size_t kLongestMail = kMailBytes - sizeof(Envelope);

/// The payload of ControlType::abort.
struct Cause {
  std::vector<int> ranks;
  std::string text;
};
inline constexpr std::size_t kMostCauseRanks = 64;

/// Returns the payload to send after `envelope`, and sets its `tag`.
std::string encode(const Cause& cause, Envelope& envelope);
/// Parses a peer's payload. Trusts only its length, `envelope.inline_bytes`.
Cause decode_cause(const Envelope& envelope, const std::byte* data);

}  // namespace hookline::engine
