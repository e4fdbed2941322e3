// Descriptions of operation tags for error messages.
#include "core/op_tag.hpp"

#include <fmt/format.h>

namespace hookline::core {

std::string describe_op_tag(std::uint64_t op_tag) {
  const auto step = step_of(op_tag);
  const auto bucket = bucket_of(op_tag);
  if (!step) return fmt::format("tensors with layout hash {:08x}", op_tag & 0xffffffff);
  if (const auto id = step_id_of(op_tag)) return fmt::format("step {}, bucket 0, step_id {}", *step, *id);
  return bucket ? fmt::format("step {}, bucket {}", *step, *bucket)
                : fmt::format("step {}, outside its buckets", *step);
}

}  // namespace hookline::core
