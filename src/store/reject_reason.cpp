// Log messages for rejected clients.
#include "store/reject_reason.hpp"

namespace hookline::store {

std::string_view describe(RejectReason reason) {
  switch (reason) {
    case RejectReason::token_missing:
      return "it presented no token. Start that process with the HOOKLINE_TOKEN of this job.";
    case RejectReason::token_wrong:
      return "its token differs from the server's. Start all processes of the job with the same HOOKLINE_TOKEN.";
    case RejectReason::token_unexpected:
      return "it presented a token and this server has none. Set HOOKLINE_TOKEN for both or for neither.";
    case RejectReason::handshake_version:
      return "it uses another version of the handshake. Use the same version of hookline in all processes.";
    case RejectReason::malformed: return "it sent malformed bytes. Check which program connects to this port.";
    case RejectReason::max_connections:
      return "all connections are in use. Raise max_connections or this process's file descriptor limit (ulimit -n).";
    case RejectReason::max_keys: return "the store has reached max_keys. Delete keys or raise max_keys.";
    case RejectReason::max_bytes:
      return "the store has reached max_bytes, which includes awaited keys. Delete keys or raise max_bytes.";
    case RejectReason::max_value_bytes: return "it sent a value larger than max_value_bytes. Raise max_value_bytes.";
    case RejectReason::max_buffered_bytes:
      return "unfinished requests and unread replies of all clients exceed max_bytes. Let clients read their replies, "
             "or raise max_bytes.";
  }
  return "";
}

}  // namespace hookline::store
