// Mutual authentication of a TCP store connection by a shared token, before the first request. No I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "store/refusal.hpp"
#include "store/wire.hpp"

namespace hookline::store {

// The messages of the handshake, in order:
//   client: the opening of PyTorch's protocol, ping(kTokenPing), magic, version (1 byte), client nonce
//   server: HandshakeReply (4 bytes); after `challenge` the server nonce and the server's proof
//   client: the client's proof
// The opening and the ping are there for servers that have no token, PyTorch's among them: they echo the ping.
// A proof is HMAC-SHA256(token, role || version || client nonce || server nonce). The role rules out that one side
// sends back the other's proof, the nonces that an old proof is accepted again. After the handshake the connection
// speaks PyTorch's protocol unchanged.
inline constexpr std::string_view kHandshakeMagic = "HOOKLINE";
inline constexpr std::uint8_t kHandshakeVersion = 1;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kOpeningBytes = 5;
inline constexpr std::size_t kHelloBytes = 2 * kOpeningBytes + kHandshakeMagic.size() + 1 + kNonceBytes;
inline constexpr std::size_t kChallengeBytes = kNonceBytes + kProofBytes;  // what follows the reply

enum class HandshakeReply : std::uint32_t {
  challenge = 0xF043484C,
  other_version = 0xF0564552,  ///< the server speaks another version of the handshake
  no_token = kTokenPing,       ///< the server speaks the plain protocol
};

using Nonce = std::array<char, kNonceBytes>;

/// Returns 32 bytes of the kernel's random numbers.
Nonce make_nonce();

enum class Role { client, server };
std::string make_proof(std::string_view token, Role role, std::string_view client_nonce, std::string_view server_nonce);

/// Compares in a time that does not depend on the contents.
bool same_proof(std::string_view one, std::string_view other);

/// The client's side. `token` must outlive the object.
class ClientHandshake {
 public:
  explicit ClientHandshake(std::string_view token) : token_(token), nonce_(make_nonce()) {}

  std::string hello() const;
  /// Takes the kChallengeBytes after HandshakeReply::challenge. Returns true if the server has the same token.
  bool verify(std::string_view challenge) const;
  /// Returns the client's answer to a challenge that verify() accepted.
  std::string proof(std::string_view challenge) const;

 private:
  std::string_view token_;
  Nonce nonce_;
};

/// The server's side of one connection. `token` must outlive the object and is not empty.
class ServerHandshake {
 public:
  enum class State { incomplete, authenticated, refused };

  explicit ServerHandshake(std::string_view token) : token_(token) {}

  /// Consumes bytes of the handshake from the front of `bytes` and appends the reply to `out`. After `authenticated`
  /// the rest of `bytes` belongs to PyTorch's protocol.
  State take(std::string_view& bytes, std::string& out);
  /// Valid after State::refused.
  Refusal refusal() const { return refusal_; }

 private:
  State refuse(Refusal refusal);
  State take_hello(std::string& out);
  State challenge(std::string& out);

  std::string_view token_;
  std::string received_;
  std::string expected_proof_;  // empty before the hello has come
  Refusal refusal_ = Refusal::malformed;
};

}  // namespace hookline::store
