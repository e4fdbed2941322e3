// Notes in words.
#include "core/note.hpp"

#include <fmt/format.h>

namespace hookline::core {

std::string describe_note(std::uint64_t note) {
  if (note >> 63 != 0) return fmt::format("tensors that look like {:08x}", note & 0xffffffff);
  const std::uint64_t step = note >> 32;
  if (note == step_note(step)) return fmt::format("step {}, outside its buckets", step);
  return fmt::format("step {}, bucket {}", step, note & 0xffffffff);
}

}  // namespace hookline::core
