// What every message of mail begins with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::engine {

enum class MailKind : std::uint32_t {
  letter = 1,    ///< a send; small ones have their elements behind the envelope, others follow as data
  received = 2,  ///< the data of a send were received: `number` says which
  left = 3,      ///< the sender leaves the group
  /// The sender's group is broken. `dtype` is kPeerLost or 0; behind the envelope lie the cause's ranks, `tag` of them,
  /// and its text.
  gave_up = 4,
};
inline constexpr std::uint32_t kPeerLost = 1;
inline constexpr MessageAddress kMailAddress{kMailChannel, 0};

struct Envelope {
  MailKind kind = MailKind::letter;
  std::int32_t tag = 0;
  std::uint32_t dtype = 0;
  std::uint32_t inlined = 0;  ///< bytes behind the envelope
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;  ///< of the first message of data
};
static_assert(sizeof(Envelope) == 32);

inline constexpr std::size_t kLongestMail = kMailBytes - sizeof(Envelope);

/// The cause of MailKind::gave_up as it travels.
struct Cause {
  std::vector<int> ranks;
  std::string text;
};
inline constexpr std::size_t kMostCauseRanks = 64;

/// Returns the bytes to send behind `envelope`, whose `tag` it sets.
std::string encode(const Cause& cause, Envelope& envelope);
/// Reads what a peer sent; nothing in it is trusted but its length, `envelope.inlined`.
Cause decode_cause(const Envelope& envelope, const std::byte* data);

}  // namespace hookline::engine
