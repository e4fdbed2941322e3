// What one client may cost the TCP store's server.
#pragma once

#include <cstddef>

#include <hookline/core/deadline.hpp>

namespace hookline::store {

/// A request must have come in full after `grace` and the time that its bytes take at `slowest` bytes a second: a
/// client that stops in the middle of one loses its connection, and the server gets the memory back. (What such a
/// client holds is bytes that it really sent; a whole request would hold them for good.) A new connection has `grace`
/// to say who it is. While more than `unsent` bytes of replies wait for a client to read them, its requests are not
/// read.
struct SessionLimits {
  Milliseconds grace = std::chrono::seconds(30);
  std::size_t slowest = 64 * 1024;
  std::size_t unsent = 1024 * 1024;
};

}  // namespace hookline::store
