// Dims: size check and formatting.
#include <hookline/core/dims.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline {

Dims::Dims(std::size_t size, std::int64_t value) : size_(size) {
  if (size > kMaxDims) {
    throw InvalidArgument(fmt::format("too many tensor dimensions: expected at most {}, got {}", kMaxDims, size));
  }
  std::fill_n(values_.begin(), size, value);
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

}  // namespace hookline
