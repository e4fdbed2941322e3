// Tests what notes say of a collective.
#include "core/note.hpp"

#include <gtest/gtest.h>

namespace hookline::core {
namespace {

TEST(Note, InWords) {
  EXPECT_EQ(describe_note(bucket_note(7, 3)), "step 7, bucket 3");
  EXPECT_EQ(describe_note(bucket_note(1, 0)), "step 1, bucket 0");
  EXPECT_EQ(describe_note(step_note(12)), "step 12, outside its buckets");
  EXPECT_EQ(describe_note(content_note(0x12345678'9abcdef0)), "tensors that look like 9abcdef0");
  EXPECT_NE(content_note(0), 0u) << "that would say nothing";
}

}  // namespace
}  // namespace hookline::core
