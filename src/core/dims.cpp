// Dims: the one check it needs.
#include <hookline/core/dims.hpp>

#include <string>

#include <hookline/core/error.hpp>

namespace hookline {

Dims::Dims(std::size_t size, std::int64_t value) : size_(size) {
  if (size > kMaxDims) {
    throw InvalidArgument("a tensor has at most " + std::to_string(kMaxDims) + " dimensions, not " +
                          std::to_string(size));
  }
  std::fill_n(values_.begin(), size, value);
}

}  // namespace hookline
