// What the code of every target is told about a cast.
#pragma once

#include <cstdint>

namespace hookline::kernel {

enum class CastKind : std::uint8_t { narrow, narrow_keeping_error, widen, widen_add };

}  // namespace hookline::kernel
