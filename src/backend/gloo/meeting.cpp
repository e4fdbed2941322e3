// One key for each rank, with its addresses for all the others.
#include "backend/gloo/meeting.hpp"

#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/meeting.hpp"

namespace hookline::gloo_engine {
namespace {

// Ranks of another version must not connect: they would have another number of connections.
constexpr std::string_view kHead = "hookline-gloo 3\n";

}  // namespace

std::string written(const Addresses& addresses) {
  std::string text(kHead);
  for (const auto& address : addresses) {
    const auto bytes = static_cast<std::uint32_t>(address.size());
    text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    text.append(address.data(), address.size());
  }
  return text;
}

Addresses read_addresses(const std::string& text, int size, int rank) {
  const auto refuse = [&] {
    throw Mismatch(fmt::format("gloo: what rank {} left in the store are not addresses for {} ranks: it runs another "
                               "version of Hookline, or the store is used for something else, too",
                               rank, size),
                   {rank});
  };
  if (text.compare(0, kHead.size(), kHead) != 0) refuse();
  std::size_t at = kHead.size();
  Addresses addresses;
  for (int i = 0; i < size; ++i) {
    std::uint32_t bytes = 0;
    if (text.size() - at < sizeof bytes) refuse();
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    at += sizeof bytes;
    if (bytes > text.size() - at) refuse();
    addresses.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(at),
                           text.begin() + static_cast<std::ptrdiff_t>(at + bytes));
    at += bytes;
  }
  if (at != text.size()) refuse();
  return addresses;
}

Addresses exchange_addresses(Store& store, int rank, int size, const Addresses& own, Clock::time_point deadline) {
  const std::vector<std::string> said = backend::meet(store, "gloo", rank, size, written(own), deadline);
  Addresses found(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r != rank) found[i] = read_addresses(said[i], size, r)[static_cast<std::size_t>(rank)];
  }
  return found;
}

}  // namespace hookline::gloo_engine
