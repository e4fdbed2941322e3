// Fuzzes the server side of the store handshake: no crash, no authentication, and an outcome that is independent of
// how the input is split.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "store/handshake.hpp"

namespace {

using namespace hookline::store;
using State = ServerHandshake::State;

struct Outcome {
  State state = State::incomplete;
  RejectReason reason = RejectReason::malformed;
  std::size_t replied = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome to_work_result(std::string_view stream, std::size_t piece) {
  ServerHandshake handshake("token");
  Outcome outcome;
  std::string reply;
  std::size_t offset = 0;
  while (offset < stream.size() && outcome.state == State::incomplete) {
    std::string_view bytes = stream.substr(offset, piece);
    const std::size_t size = bytes.size();
    outcome.state = handshake.consume(bytes, reply);
    offset += size - bytes.size();
    if (outcome.state == State::incomplete && !bytes.empty()) std::abort();
  }
  if (outcome.state == State::authenticated) std::abort();
  if (outcome.state == State::rejected) outcome.reason = handshake.reject_reason();
  outcome.replied = reply.size();
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = to_work_result(stream, std::max<std::size_t>(stream.size(), 1));
  if (to_work_result(stream, data[0] % 64 + 1U) != whole) std::abort();
  return 0;
}
