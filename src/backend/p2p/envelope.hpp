// The header of a control message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hookline/backend/transport.hpp>

namespace hookline::p2p {

enum class ControlType : std::uint32_t {
  send = 1,     ///< a send; the payload of a small one follows the envelope, a large one is sent as data
  ack = 2,      ///< acknowledges the data of the send with this `data_sequence`
  goodbye = 3,  ///< the sender leaves the group
  /// The sender's group failed. `dtype` is kPeerLost or 0. The payload is the ranks of the cause, `tag` of them, and
  /// the text.
  abort = 4,
};
inline constexpr std::uint32_t kPeerLost = 1;
inline constexpr MessageTag kControlTag{kControlChannel, 0};

struct Envelope {
  ControlType type = ControlType::send;
  std::int32_t tag = 0;
  std::uint32_t dtype = 0;
  std::uint32_t inline_bytes = 0;  ///< payload bytes that follow the envelope
  std::uint64_t bytes = 0;
  std::uint64_t data_sequence = 0;  ///< sequence of the first data message
};
static_assert(sizeof(Envelope) == 32);

inline constexpr std::size_t kMaxControlPayload = kMaxControlBytes - sizeof(Envelope);

/// The payload of ControlType::abort.
struct AbortCause {
  std::vector<int> ranks;
  std::string text;
};
inline constexpr std::size_t kMaxCauseRanks = 64;

/// Returns the payload to send after `envelope`, and sets its `tag`.
std::string encode_cause(const AbortCause& cause, Envelope& envelope);
/// Parses a peer's payload. Trusts only its length, `envelope.inline_bytes`.
AbortCause decode_cause(const Envelope& envelope, const std::byte* data);

}  // namespace hookline::p2p
