// Binary numbers in byte strings, in host byte order.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace hookline::store {

template <typename T>
void append_number(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

/// Returns the number at `offset`, which must be in range.
template <typename T>
T number_at(std::string_view bytes, std::size_t offset) {
  T number;
  std::memcpy(&number, bytes.data() + offset, sizeof(T));
  return number;
}

}  // namespace hookline::store
