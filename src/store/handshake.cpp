// HMAC-SHA256 proofs and the state machines of both sides.
#include "store/handshake.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include <hookline/core/error.hpp>

namespace hookline::store {
namespace {

std::string_view view(const Nonce& nonce) { return {nonce.data(), nonce.size()}; }

std::string_view nonce_of(std::string_view challenge) { return challenge.substr(0, kNonceBytes); }

// Returns the start of the client's first message, which is equal for all clients and handshake versions.
std::string opening() {
  std::string bytes = RequestBuilder(Query::validate).number(kMagic).bytes();
  bytes.append(RequestBuilder(Query::ping).number(kTokenPing).bytes());
  return bytes.append(kHandshakeMagic);
}

}  // namespace

Nonce make_nonce() {
  Nonce nonce{};
  ssize_t got = 0;
  do {
    got = ::getrandom(nonce.data(), nonce.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(nonce.size())) {
    throw ResourceError("TCPStore: getrandom failed: " + std::generic_category().message(errno));
  }
  return nonce;
}

std::string make_proof(std::string_view token, Role role, std::string_view client_nonce,
                       std::string_view server_nonce) {
  // The server thread may outlive main(), so OpenSSL must not clean up at exit.
  static const bool initialized = ::OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  std::string message = role == Role::client ? "hookline store client" : "hookline store server";
  message.push_back(static_cast<char>(kHandshakeVersion));
  message.append(client_nonce).append(server_nonce);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const bool fits = token.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max());
  const unsigned char* mac = initialized && fits ? ::HMAC(::EVP_sha256(), token.data(), static_cast<int>(token.size()),
                                                          reinterpret_cast<const unsigned char*>(message.data()),
                                                          message.size(), digest.data(), &size)
                                                 : nullptr;
  if (mac == nullptr || size != kProofBytes) {
    throw ResourceError(
        "TCPStore: OpenSSL cannot compute HMAC-SHA256. Check whether its configuration disables SHA-256.");
  }
  return {reinterpret_cast<const char*>(digest.data()), kProofBytes};
}

bool same_proof(std::string_view one, std::string_view other) {
  return one.size() == other.size() && ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::string ClientHandshake::hello() const {
  std::string bytes = opening();
  bytes.push_back(static_cast<char>(kHandshakeVersion));
  return bytes.append(view(nonce_));
}

bool ClientHandshake::verify(std::string_view challenge) const {
  return same_proof(challenge.substr(kNonceBytes), make_proof(token_, Role::server, view(nonce_), nonce_of(challenge)));
}

std::string ClientHandshake::proof(std::string_view challenge) const {
  return make_proof(token_, Role::client, view(nonce_), nonce_of(challenge));
}

ServerHandshake::State ServerHandshake::reject(RejectReason reason) {
  reject_reason_ = reason;
  return State::rejected;
}

ServerHandshake::State ServerHandshake::consume(std::string_view& bytes, std::string& out) {
  const std::size_t wanted = expected_proof_.empty() ? kHelloBytes : kProofBytes;
  const std::size_t step = std::min(wanted - received_.size(), bytes.size());
  received_.append(bytes.substr(0, step));
  bytes.remove_prefix(step);
  if (expected_proof_.empty()) {
    const State state = consume_hello(out);
    // The client may have sent more bytes before it received the challenge.
    return state == State::incomplete && !bytes.empty() ? consume(bytes, out) : state;
  }
  if (received_.size() < wanted) return State::incomplete;
  return same_proof(received_, expected_proof_) ? State::authenticated : reject(RejectReason::token_wrong);
}

ServerHandshake::State ServerHandshake::consume_hello(std::string& out) {
  static const std::string expected = opening();
  const std::size_t compared = std::min(received_.size(), expected.size());
  const auto differs =
      std::mismatch(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(compared), expected.begin());
  const auto same = static_cast<std::size_t>(differs.first - received_.begin());
  if (same < compared && same < kOpeningBytes) return reject(RejectReason::malformed);
  if (same < compared && same < 2 * kOpeningBytes) {
    append_number(out, kTokenRequired);  // replaces the reply to the client's ping
    return reject(RejectReason::token_missing);
  }
  if (same < compared) return reject(RejectReason::malformed);
  return received_.size() < kHelloBytes ? State::incomplete : write_challenge(out);
}

ServerHandshake::State ServerHandshake::write_challenge(std::string& out) {
  const std::size_t version_at = 2 * kOpeningBytes + kHandshakeMagic.size();
  if (static_cast<std::uint8_t>(received_[version_at]) != kHandshakeVersion) {
    append_number(out, HandshakeReply::other_version);
    return reject(RejectReason::handshake_version);
  }
  const std::string_view client_nonce = std::string_view(received_).substr(version_at + 1);
  const Nonce nonce = make_nonce();
  append_number(out, HandshakeReply::challenge);
  out.append(view(nonce)).append(make_proof(token_, Role::server, client_nonce, view(nonce)));
  expected_proof_ = make_proof(token_, Role::client, client_nonce, view(nonce));
  received_.clear();
  return State::incomplete;
}

}  // namespace hookline::store
