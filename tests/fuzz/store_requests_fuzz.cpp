// Fuzzes the store server's request parser: no crash, and replies that are independent of how the input is split.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "store/request_reader.hpp"
#include "store/service.hpp"

namespace {

using namespace hookline::store;

// Returns the replies to a byte stream split into pieces of `piece` bytes. Stops after the first invalid request, where
// a server closes the connection.
std::string replies_to(std::string_view stream, std::size_t piece) {
  RequestReader reader;
  StoreService service;
  Request request;
  std::string replies;
  while (!stream.empty()) {
    std::string_view bytes = stream.substr(0, piece);
    stream.remove_prefix(bytes.size());
    while (!bytes.empty()) {
      const ParseStatus state = reader.read(bytes, request);
      if (state == ParseStatus::invalid) return replies + "bad";
      if (state == ParseStatus::incomplete) continue;
      if (!service.serve(1, request, replies)) return replies + "refused";
      for (const ClientId client : service.take_woken()) replies += "woken" + std::to_string(client);
    }
  }
  return replies;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = replies_to(stream, std::max<std::size_t>(stream.size(), 1));
  if (replies_to(stream, data[0] % 64 + 1U) != whole) std::abort();
  return 0;
}
