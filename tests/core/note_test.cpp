// Tests for operation tags.
#include "core/note.hpp"

#include <gtest/gtest.h>

namespace hookline::core {
namespace {

TEST(Note, InWords) {
  EXPECT_EQ(describe_note(bucket_note(7, 3)), "step 7, bucket 3");
  EXPECT_EQ(describe_note(bucket_note(1, 0)), "step 1, bucket 0");
  EXPECT_EQ(describe_note(step_note(12)), "step 12, outside its buckets");
  EXPECT_EQ(describe_note(content_note(0x12345678'9abcdef0)), "tensors with layout hash 9abcdef0");
  EXPECT_NE(content_note(0), 0u) << "0 means no tag";
  EXPECT_EQ(step_of(bucket_note(7, 3)), 7u);
  EXPECT_EQ(bucket_of(bucket_note(7, 3)), 3u);
  EXPECT_EQ(step_of(step_note(12)), 12u);
  const std::uint64_t numbered = step_id_note(7, 4294967295);
  EXPECT_EQ(describe_note(numbered), "step 7, bucket 0, step_id 4294967295");
  EXPECT_EQ(step_of(numbered), 7u);
  EXPECT_EQ(bucket_of(numbered), 0u);
  EXPECT_EQ(step_id_of(numbered), 4294967295u);
  for (const std::uint64_t note : {bucket_note(7, 3), step_note(12), content_note(~std::uint64_t{0})}) {
    EXPECT_FALSE(step_id_of(note));
  }
  for (const std::uint64_t note : {std::uint64_t{0}, step_note(12), content_note(3)}) EXPECT_FALSE(bucket_of(note));
  EXPECT_FALSE(step_of(0));
  EXPECT_FALSE(step_of(content_note(3)));
}

}  // namespace
}  // namespace hookline::core
