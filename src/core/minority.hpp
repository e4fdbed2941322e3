// Finds the elements that differ from the majority.
#pragma once

#include <cstddef>
#include <vector>

namespace hookline::core {

/// Returns the indices below `count` outside the largest equivalence class of `equivalent(i, j)`. Of classes of equal
/// size, the one with the lowest index counts as the largest.
template <class Same>
std::vector<int> minority(std::size_t count, Same same) {
  std::vector<std::size_t> class_of(count);  // the lowest index of each class
  std::vector<std::size_t> members(count);
  std::size_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t first = 0;
    while (first < i && (class_of[first] != first || !same(first, i))) ++first;
    class_of[i] = first;
    ++members[first];
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (members[i] > members[largest]) largest = i;
  }
  std::vector<int> others;
  for (std::size_t i = 0; i < count; ++i) {
    if (class_of[i] != largest) others.push_back(static_cast<int>(i));
  }
  return others;
}

}  // namespace hookline::core
