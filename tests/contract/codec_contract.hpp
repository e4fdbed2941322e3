// Instantiates the codec contract (codec_contract.cpp) for an implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Half, CodecContract, ::testing::Values(CodecCase{[] { return make_codec("fp16"); }}));
#pragma once

#include <functional>
#include <ostream>

#include <gtest/gtest.h>

#include <hookline/codec/codec.hpp>

namespace hookline::contract {

struct CodecCase {
  std::function<CodecPtr()> make;
  /// True if decoding detects any corruption; false if only corruption of the header.
  bool detects_corruption = true;

  friend void PrintTo(const CodecCase& codec_case, std::ostream* out) { *out << codec_case.make()->name(); }
};

class CodecContract : public ::testing::TestWithParam<CodecCase> {
 protected:
  CodecPtr codec = GetParam().make();
};

}  // namespace hookline::contract
