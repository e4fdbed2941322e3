// Ends a program of this folder with the line at which something was not as the program says.
#pragma once

#include <stdexcept>
#include <string>

inline void expect(bool holds, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!holds) throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + " does not hold");
}
