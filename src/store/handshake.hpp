// Mutual authentication of TCP store connections by a shared token. No I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "store/reject_reason.hpp"
#include "store/wire.hpp"

namespace hookline::store {

// The messages of the handshake, in order:
//   client: validate(kMagic) as in PyTorch, ping(kTokenPing), kHandshakeMagic, version (1 byte), client nonce
//   server: HandshakeReply (4 bytes); after `challenge` the server nonce and the server's proof
//   client: the client's proof
// Servers without a token, such as PyTorch's, accept `validate` and echo the ping.
// A proof is HMAC-SHA256(token, role || version || client nonce || server nonce). The role prevents reflection, the
// nonces prevent replay. After the handshake the connection uses PyTorch's protocol unchanged.
inline constexpr std::string_view kHandshakeMagic = "HOOKLINE";
inline constexpr std::uint8_t kHandshakeVersion = 1;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kOpeningBytes = 5;
inline constexpr std::size_t kHelloBytes = 2 * kOpeningBytes + kHandshakeMagic.size() + 1 + kNonceBytes;
inline constexpr std::size_t kChallengeBytes = kNonceBytes + kProofBytes;  // after the HandshakeReply

enum class HandshakeReply : std::uint32_t {
  challenge = 0xF043484C,
  other_version = 0xF0564552,  ///< the server uses another version of the handshake
  no_token = kTokenPing,       ///< the server uses the plain protocol
};

using Nonce = std::array<char, kNonceBytes>;

/// Returns 32 random bytes from the kernel.
Nonce make_nonce();

enum class Role { client, server };
/// Returns the proof that the given side knows the token.
std::string make_proof(std::string_view token, Role role, std::string_view client_nonce, std::string_view server_nonce);

/// Compares in constant time.
bool same_proof(std::string_view one, std::string_view other);

/// The client side. `token` must outlive the object.
class ClientHandshake {
 public:
  explicit ClientHandshake(std::string_view token) : token_(token), nonce_(make_nonce()) {}

  std::string hello() const;
  /// True if the kChallengeBytes after HandshakeReply::challenge prove that the server has the same token.
  bool verify(std::string_view challenge) const;
  /// Returns the client's proof for a challenge that verify() accepted.
  std::string proof(std::string_view challenge) const;

 private:
  std::string_view token_;
  Nonce nonce_;
};

/// The server side of one connection. `token` must be non-empty and outlive the object.
class ServerHandshake {
 public:
  enum class State { incomplete, authenticated, rejected };

  explicit ServerHandshake(std::string_view token) : token_(token) {}

  /// Consumes handshake bytes from the front of `bytes` and appends the reply to `out`. After `authenticated`, the rest
  /// of `bytes` belongs to PyTorch's protocol.
  State consume(std::string_view& bytes, std::string& out);
  /// Returns the reason of State::rejected.
  RejectReason reject_reason() const { return reject_reason_; }

 private:
  State reject(RejectReason reason);
  State consume_hello(std::string& out);
  State write_challenge(std::string& out);

  std::string_view token_;
  std::string received_;
  std::string expected_proof_;  // empty until the hello is complete
  RejectReason reject_reason_ = RejectReason::malformed;
};

}  // namespace hookline::store
