// Tests for operation tags.
#include "core/op_tag.hpp"

#include <gtest/gtest.h>

namespace hookline::core {
namespace {

TEST(OpTag, DescribesStepAndBucket) {
  EXPECT_EQ(describe_op_tag(bucket_tag(7, 3)), "step 7, bucket 3");
  EXPECT_EQ(describe_op_tag(bucket_tag(1, 0)), "step 1, bucket 0");
  EXPECT_EQ(describe_op_tag(step_tag(12)), "step 12, outside its buckets");
  EXPECT_EQ(describe_op_tag(content_tag(0x12345678'9abcdef0)), "tensors with layout hash 9abcdef0");
  EXPECT_NE(content_tag(0), 0u) << "0 means no tag";
  EXPECT_EQ(step_of(bucket_tag(7, 3)), 7u);
  EXPECT_EQ(bucket_of(bucket_tag(7, 3)), 3u);
  EXPECT_EQ(step_of(step_tag(12)), 12u);
  const std::uint64_t with_step_id = step_id_tag(7, 4294967295);
  EXPECT_EQ(describe_op_tag(with_step_id), "step 7, bucket 0, step_id 4294967295");
  EXPECT_EQ(step_of(with_step_id), 7u);
  EXPECT_EQ(bucket_of(with_step_id), 0u);
  EXPECT_EQ(step_id_of(with_step_id), 4294967295u);
  for (const std::uint64_t op_tag : {bucket_tag(7, 3), step_tag(12), content_tag(~std::uint64_t{0})}) {
    EXPECT_FALSE(step_id_of(op_tag));
  }
  for (const std::uint64_t op_tag : {std::uint64_t{0}, step_tag(12), content_tag(3)}) EXPECT_FALSE(bucket_of(op_tag));
  EXPECT_FALSE(step_of(0));
  EXPECT_FALSE(step_of(content_tag(3)));
}

}  // namespace
}  // namespace hookline::core
