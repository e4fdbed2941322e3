// Finds the elements that differ from the majority.
#pragma once

#include <cstddef>
#include <vector>

namespace hookline::core {

/// Returns the indices below `count` outside the largest equivalence class of `equivalent(i, j)`. Of classes of equal
/// size, the one with the lowest index counts as the largest.
template <class Same>
std::vector<int> minority(std::size_t count, Same equivalent) {
  std::vector<std::size_t> class_of(count);  // the lowest index of each class
  std::vector<std::size_t> class_size(count);
  std::size_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t first = 0;
    while (first < i && (class_of[first] != first || !equivalent(first, i))) ++first;
    class_of[i] = first;
    ++class_size[first];
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (class_size[i] > class_size[largest]) largest = i;
  }
  std::vector<int> result;
  for (std::size_t i = 0; i < count; ++i) {
    if (class_of[i] != largest) result.push_back(static_cast<int>(i));
  }
  return result;
}

}  // namespace hookline::core
