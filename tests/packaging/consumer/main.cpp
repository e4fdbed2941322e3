// Uses an installed Hookline: headers, library code, options, and an exception across the library boundary.
#include <hookline/hookline.hpp>
#include <iostream>

// Designated initialization of some members keeps the defaults of the others, without a warning.
const hookline::InitOptions kOptions{.backend = "gloo"};
const hookline::TransportConfig kConfig{.rank = 1};
const hookline::FlightRecorderOptions kRecord{.capacity = 8};
const hookline::Operation kOperation{.type = hookline::OpType::barrier};
const hookline::TCPStoreOptions kStore{.port = 1};

int main() {
  if (kOptions.rank || kConfig.size != 1 || kRecord.capacity != 8 || kOperation.root != 0 || kStore.port != 1) return 1;
  try {
    hookline::Dims(1000, 1);
  } catch (const hookline::InvalidArgument& error) {
    std::cout << HOOKLINE_VERSION << ": " << error.what() << '\n';
    return 0;
  }
  return 1;
}
