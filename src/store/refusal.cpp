// The server's words for each refusal.
#include "store/refusal.hpp"

namespace hookline::store {

std::string_view explain(Refusal refusal) {
  switch (refusal) {
    case Refusal::token_missing: return "it presented no token; start that process with the HOOKLINE_TOKEN of this job";
    case Refusal::token_wrong:
      return "its token differs from the server's; start all processes of the job with the same HOOKLINE_TOKEN";
    case Refusal::token_unexpected:
      return "it presented a token and this server has none; set HOOKLINE_TOKEN for the server too, or for neither";
    case Refusal::version:
      return "it speaks another version of the handshake; use the same version of hookline in all processes";
    case Refusal::malformed: return "it sent bytes that the protocol does not have; see which program uses this port";
    case Refusal::connections:
      return "all connections are in use; raise max_connections, or this process's limit on file descriptors (ulimit "
             "-n)";
    case Refusal::keys: return "the store has as many keys as it may; delete some, or raise max_keys";
    case Refusal::bytes:
      return "the store holds as many bytes as it may, keys that clients wait for included; delete some, or raise "
             "max_bytes";
    case Refusal::value_bytes: return "it sent a value that is larger than the store allows; raise max_value_bytes";
    case Refusal::buffered_bytes:
      return "unfinished requests and unread replies of all clients are larger than max_bytes; let clients read their "
             "replies, or raise max_bytes";
  }
  return "";
}

}  // namespace hookline::store
