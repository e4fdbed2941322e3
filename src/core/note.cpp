// Descriptions of operation tags for error messages.
#include "core/note.hpp"

#include <fmt/format.h>

namespace hookline::core {

std::string describe_note(std::uint64_t note) {
  const auto step = step_of(note);
  const auto bucket = bucket_of(note);
  if (!step) return fmt::format("tensors with layout hash {:08x}", note & 0xffffffff);
  if (const auto id = step_id_of(note)) return fmt::format("step {}, bucket 0, step_id {}", *step, *id);
  return bucket ? fmt::format("step {}, bucket {}", *step, *bucket)
                : fmt::format("step {}, outside its buckets", *step);
}

}  // namespace hookline::core
