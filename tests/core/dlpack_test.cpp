// Tests for DLPack: round trips, ownership and invalid tensors.
#include <functional>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/core/tensor.hpp>

#include "core/dlpack_abi.hpp"

namespace hookline {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// A foreign tensor that counts calls of its deleter.
struct Foreign {
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> shape = {2, 3};
  std::vector<std::int64_t> strides = {3, 1};
  int deleted = 0;
  DLManagedTensorVersioned managed{
      .version = {1, 0},
      .manager_ctx = this,
      .deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; },
      .flags = 0,
      .dl_tensor = {data.data(), {1, 0}, 2, {2, 32, 1}, shape.data(), strides.data(), 0}};
};

TEST(DLPack, ImportCallsTheDeleterOnce) {
  Foreign foreign;
  {
    const Tensor t = Tensor::from_dlpack(&foreign.managed);
    const Tensor view = t.slice(0, 1, 2);
    EXPECT_EQ(view.bytes(), reinterpret_cast<const std::byte*>(foreign.data.data() + 3));
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, HonoursReadOnlyOffsetAndMissingStrides) {
  Foreign foreign;
  foreign.managed.flags = 1;
  foreign.managed.dl_tensor.byte_offset = 4;
  foreign.managed.dl_tensor.strides = nullptr;
  foreign.shape = {1, 5};
  foreign.managed.dl_tensor.shape = foreign.shape.data();
  const Tensor t = Tensor::from_dlpack(&foreign.managed);
  EXPECT_TRUE(t.read_only());
  EXPECT_EQ(t.data<const float>()[0], 2.0f);
  EXPECT_EQ(t.strides(), (Dims{5, 1}));
}

TEST(DLPack, EveryDtypeComesBackWithTheSameMemory) {
  for (int i = 0; i < 10; ++i) {
    const Tensor t = Tensor::full({3, 4}, 1, static_cast<DType>(i)).slice(1, 1, 4, 2);
    for (const Tensor& back : {Tensor::from_dlpack(t.to_dlpack()), Tensor::from_dlpack(t.to_dlpack_unversioned())}) {
      EXPECT_EQ(back.bytes(), t.bytes());
      EXPECT_EQ(to_string(back), to_string(t));
    }
  }
}

TEST(DLPack, ExportKeepsTheMemoryAlive) {
  DLManagedTensorVersioned* managed = nullptr;
  std::weak_ptr<void> memory;
  {
    const Tensor t = Tensor::zeros({2});
    memory = t.owner();
    managed = t.as_read_only().to_dlpack();
    EXPECT_THROW(t.as_read_only().to_dlpack_unversioned(), InvalidArgument);
  }
  EXPECT_FALSE(memory.expired());
  EXPECT_EQ(managed->flags, 1u);
  managed->deleter(managed);
  EXPECT_TRUE(memory.expired());
}

template <class E>
void expect_rejected(const std::function<void(Foreign&, DLTensor&)>& damage, const char* message) {
  Foreign foreign;
  damage(foreign, foreign.managed.dl_tensor);
  EXPECT_THAT([&] { Tensor::from_dlpack(&foreign.managed); }, ThrowsMessage<E>(HasSubstr(message)));
  EXPECT_EQ(foreign.deleted, 0) << message << ": the caller keeps ownership of a rejected tensor";
}

TEST(DLPack, RejectsUnsupportedTensors) {
  expect_rejected<Unsupported>([](Foreign&, DLTensor& t) { t.device = {2, 3}; }, "cuda:3");
  expect_rejected<Unsupported>([](Foreign&, DLTensor& t) { t.device = {-5, 0}; }, "device type -5");
  expect_rejected<Unsupported>([](Foreign& f, DLTensor&) { f.managed.version.major = 2; }, "version 2.0");
  expect_rejected<Unsupported>([](Foreign&, DLTensor& t) { t.dtype = {5, 64, 1}; }, "code 5");
  expect_rejected<Unsupported>([](Foreign&, DLTensor& t) { t.dtype.lanes = 4; }, "4 lanes");
}

TEST(DLPack, RejectsInconsistentTensors) {
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  expect_rejected<InvalidArgument>([](Foreign&, DLTensor& t) { t.ndim = -1; }, "dimensions, got -1");
  expect_rejected<InvalidArgument>([](Foreign&, DLTensor& t) { t.ndim = 1000; }, "dimensions, got 1000");
  expect_rejected<InvalidArgument>([](Foreign&, DLTensor& t) { t.shape = nullptr; }, "the shape is null");
  expect_rejected<InvalidArgument>([](Foreign&, DLTensor& t) { t.data = nullptr; }, "null");
  expect_rejected<InvalidArgument>(
      [](Foreign&, DLTensor& t) {
        t.data = nullptr;
        t.byte_offset = 4096;
      },
      "null");
  expect_rejected<InvalidArgument>([](Foreign& f, DLTensor&) { f.shape[0] = -2; }, "negative extent");
  expect_rejected<InvalidArgument>([](Foreign& f, DLTensor&) { f.shape[0] = kHuge; }, "overflows");
  expect_rejected<InvalidArgument>([](Foreign& f, DLTensor&) { f.strides[0] = f.strides[1] = kHuge; }, "overflows");
  expect_rejected<InvalidArgument>([](Foreign&, DLTensor& t) { t.byte_offset = 2; }, "aligned");
  EXPECT_THROW(Tensor::from_dlpack(static_cast<DLManagedTensor*>(nullptr)), InvalidArgument);
}

}  // namespace
}  // namespace hookline
