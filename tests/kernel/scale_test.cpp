// Multiplying in place: every target, around vector widths, in the arithmetic of the dtype.
#include "kernel/scale.hpp"

#include <gtest/gtest.h>

#include "kernel/float_reference.hpp"

namespace hookline::kernel {
namespace {

TEST(Scale, MultipliesEveryElementAndNoOther) {
  std::mt19937 random(50);
  for (const Target target : supported_targets()) {
    for (std::size_t count = 0; count < 200; ++count) {
      std::vector<float> values = mixed_floats(count + 8, random), want = values;
      const std::size_t off = count % 4;
      for (std::size_t i = off; i < off + count; ++i) want[i] = std::isnan(want[i]) ? kNan : want[i] * 0.3f;
      std::byte* const bytes = std::as_writable_bytes(std::span(values)).data() + off * 4;
      scale(DType::f32, bytes, bytes, count, 0.3f, Stores::automatic, target);
      ASSERT_TRUE(same_bits(values, want)) << name(target) << ", " << count << " elements";
    }
  }
}

}  // namespace
}  // namespace hookline::kernel
