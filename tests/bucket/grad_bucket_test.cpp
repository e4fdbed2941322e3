// Tests for GradBucket: views, set_buffer and invalid arguments.
#include <hookline/bucket/grad_bucket.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const BucketLayout> two() {
  return std::make_shared<const BucketLayout>(layout_of({Dims{2, 3}, Dims{}, Dims{4}}));
}

TEST(GradBucket, ReportsOffsetsAndSizes) {
  const GradBucket bucket(1, 2, Tensor::zeros({11}), two());
  EXPECT_EQ(bucket.index(), 1u);
  EXPECT_EQ(bucket.bucket_count(), 2u);
  EXPECT_TRUE(bucket.is_last());
  EXPECT_THAT(bucket.offsets(), ElementsAre(0, 6, 7));
  EXPECT_THAT(bucket.lengths(), ElementsAre(6, 1, 4));
  EXPECT_EQ(bucket.sizes()[0], (Dims{2, 3}));
  EXPECT_FALSE(bucket.sparse_grad_indices());
  EXPECT_FALSE(GradBucket(0, 2, Tensor::zeros({11}), two()).is_last());
}

TEST(GradBucket, OfATensor) {
  const Tensor tensor = Tensor::full({2, 3}, 7);
  const GradBucket whole = GradBucket::of(tensor);
  EXPECT_EQ(whole.index(), 0u);
  EXPECT_EQ(whole.bucket_count(), 1u);
  EXPECT_TRUE(whole.is_last());
  EXPECT_EQ(whole.buffer().shape(), (Dims{6}));
  EXPECT_EQ(whole.buffer().bytes(), tensor.bytes()) << "shares the memory";
  EXPECT_THAT(whole.sizes(), ElementsAre(Dims{2, 3}));
  EXPECT_TRUE(whole.parameters().empty());

  const GradBucket several = GradBucket::of(tensor, {Dims{2, 2}, Dims{}, Dims{1}});
  EXPECT_THAT(several.offsets(), ElementsAre(0, 4, 5));
  EXPECT_EQ(several.gradients()[0].shape(), (Dims{2, 2}));
  EXPECT_EQ(GradBucket::of(Tensor::zeros({0})).buffer().numel(), 0);
  EXPECT_EQ(GradBucket::of(Tensor::full({}, 1, DType::f64)).buffer().shape(), (Dims{1}));

  EXPECT_THROW((void)GradBucket::of(tensor, {Dims{5}}), InvalidArgument);
  EXPECT_THROW((void)GradBucket::of(tensor, {Dims{6}, Dims{1}}), InvalidArgument);
  EXPECT_THROW((void)GradBucket::of(Tensor::zeros({4, 4}).slice(1, 0, 2)), InvalidArgument);
}

TEST(GradBucket, RejectsANullLayout) {
  EXPECT_THAT([] { (void)GradBucket(0, 1, Tensor::zeros({11}), nullptr); },
              ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("the layout is null")));
}

TEST(GradBucket, GradientsAreViews) {
  const GradBucket bucket(0, 1, Tensor::zeros({11}), two());
  const auto gradients = bucket.gradients();
  ASSERT_EQ(gradients.size(), 3u);
  EXPECT_EQ(gradients[0].shape(), (Dims{2, 3}));
  EXPECT_EQ(gradients[1].dim(), 0u);
  gradients[2].fill(5);
  EXPECT_EQ(bucket.buffer().data<float>()[7], 5.0f);
  EXPECT_EQ(bucket.buffer().data<float>()[6], 0.0f);
}

TEST(GradBucket, SetBufferMayChangeTheDtype) {
  GradBucket bucket(0, 1, Tensor::zeros({11}), two());
  const GradBucket copy = bucket;
  bucket.set_buffer(Tensor::full({11}, 2, DType::f16));
  EXPECT_EQ(bucket.buffer().dtype(), DType::f16);
  EXPECT_EQ(bucket.gradients()[1].item<float>(), 2.0f);
  EXPECT_EQ(copy.buffer().dtype(), DType::f32);
  EXPECT_THROW(bucket.set_buffer(Tensor::zeros({10})), InvalidArgument);
  EXPECT_THROW(bucket.set_buffer(Tensor::zeros({11, 1})), InvalidArgument);
}

TEST(GradBucket, RejectsMismatchedBuffers) {
  EXPECT_THROW(GradBucket(0, 1, Tensor::zeros({12}), two()), InvalidArgument);
  EXPECT_THROW(GradBucket(0, 1, Tensor::zeros({22}).slice(0, 0, 22, 2), two()), InvalidArgument);
  EXPECT_THROW(GradBucket(1, 1, Tensor::zeros({11}), two()), InvalidArgument);
  const auto one = std::make_shared<const BucketLayout>(layout_of({Dims{2}, Dims{2}}, {Tensor::zeros({2})}));
  EXPECT_THROW(GradBucket(0, 1, Tensor::zeros({4}), one), InvalidArgument);
  const auto named = std::make_shared<const BucketLayout>(layout_of({Dims{2}, Dims{2}}, {}, {"w"}));
  EXPECT_THROW(GradBucket(0, 1, Tensor::zeros({4}), named), InvalidArgument);
  EXPECT_THROW((void)layout_of({Dims{-1}}), InvalidArgument);
}

}  // namespace
}  // namespace hookline
