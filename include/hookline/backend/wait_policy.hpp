// WaitPolicy: the waiting strategy of a thread.
#pragma once

#include <cstdint>

namespace hookline {

/// The waiting strategy of a thread. spin: polls for some time before it blocks, because peers and messages usually
/// arrive before a blocked thread would wake up. block: releases the core at once, for slower events.
enum class WaitPolicy : std::uint8_t { spin, block };

}  // namespace hookline
