// Tests compressed reductions: error bounds, equal bits on all ranks, and sent bytes.
#include <hookline/group/compressed.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>

#include "contract/group_reference.hpp"
#include "harness/spawn.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;
using testing::GroupFixture;
using testing::require;

const std::vector<std::string> kCodecs = {"fp16",
                                          "bf16",
                                          "int8",
                                          "int8(block=tensor)",
                                          "int8(block=100, range=symmetric)",
                                          "int4",
                                          "int4(block=64, range=affine, rounding=stochastic)"};

float value(int rank, std::int64_t i) { return std::sin(0.37F * static_cast<float>(i) + static_cast<float>(rank)); }

Tensor filled(ProcessGroup& group, std::int64_t count) {
  Tensor t = group.empty({count});
  for (std::int64_t i = 0; i < count; ++i) t.data<float>()[i] = value(group.rank(), i);
  return t;
}

double exact_mean(int ranks, std::int64_t i) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += static_cast<double>(value(r, i));
  return sum / ranks;
}

// Maximum error of encoding values between -1 and 1. Stochastic rounding may be off by a whole step.
double rounding(const std::string& codec) {
  if (codec == "fp16") return 0x1p-11;
  if (codec == "bf16") return 0x1p-8;
  if (codec.starts_with("int8")) return 1.01 / 255;
  return codec.find("stochastic") == std::string::npos ? 1.01 / 14 : 2.02 / 15;
}

void same_on_all_ranks(ProcessGroup& group, const Tensor& t, const std::string& what) {
  const auto size = static_cast<std::int64_t>(t.nbytes());
  if (size == 0) return;
  Tensor bytes = Tensor::empty({size}, DType::u8);
  std::memcpy(bytes.mutable_bytes(), t.bytes(), t.nbytes());
  Tensor all = Tensor::empty({size * group.size()}, DType::u8);
  group.allgather_into_tensor(all, bytes)->wait(30s);
  for (int r = 0; r < group.size(); ++r) {
    require(std::memcmp(all.bytes() + r * size, t.bytes(), t.nbytes()) == 0,
            what + ": differs from rank " + std::to_string(r));
  }
}

class Compressed : public ::testing::TestWithParam<testing::GroupFixture> {};

TEST_P(Compressed, MeanWithSameBitsOnAllRanks) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    GetParam().spawn(ranks, [&](ProcessGroup& group) {
      for (const std::string& codec : kCodecs) {
        for (const std::int64_t count : {0, 1, 2, 5, 1000, 70000}) {
          const std::string what = codec + " of " + std::to_string(count);
          const Tensor t = filled(group, count);
          group.allreduce(t, make_codec(codec), {.op = ReduceOp::avg})->wait(30s);
          // A reduction by slices rounds twice: the values of each rank, and their mean.
          const double bound = 2 * rounding(codec) + 1e-6;
          for (std::int64_t i = 0; i < count; ++i) {
            const double off = std::abs(static_cast<double>(t.data<float>()[i]) - exact_mean(ranks, i));
            require(off <= bound, what + ": element " + std::to_string(i) + " is off by " + std::to_string(off));
          }
          same_on_all_ranks(group, t, what);
        }
      }
    });
  }
}

// Reference for two ranks: encodes, decodes and sums message by message in one thread.
struct TwoRankReference {
  TwoRankReference(const std::string& name, std::size_t count)
      : codec(make_codec(name)), residuals{std::vector<float>(count), std::vector<float>(count)} {}

  std::vector<float> mean(std::uint64_t step, const CompressionOptions& options) {
    constexpr std::size_t kMessage = 32768;
    std::vector<float> sum(residuals[0].size());
    for (std::uint64_t rank = 0; rank < 2; ++rank) {
      std::vector<float> values(sum.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = value(static_cast<int>(rank), static_cast<std::int64_t>(i));
      }
      const std::size_t each = (kMessage + codec->block() - 1) / codec->block() * codec->block();
      for (std::size_t i = 0; i < sum.size(); i += each) {
        const std::size_t part = std::min(each, sum.size() - i);
        std::vector<std::byte> message(codec->encoded_bytes(part));
        const RoundingKey key{
            .seed = options.seed, .step = step, .bucket = options.bucket, .rank = rank, .first_index = i};
        const std::span<const float> from = std::span(values).subspan(i, part);
        if (options.error_feedback) {
          codec->encode_with_residual(from, std::span(residuals[rank]).subspan(i, part), message, key);
        } else {
          codec->encode(from, message, key);
        }
        codec->decode_add(message, std::span(sum).subspan(i, part));
      }
    }
    for (float& mean : sum) mean *= 0.5F;
    return sum;
  }

  CodecPtr codec;
  std::array<std::vector<float>, 2> residuals;
};

TEST_P(Compressed, TwoRanksMatchReferencePerMessage) {
  GetParam().spawn(2, [&](ProcessGroup& group) {
    for (const char* codec : {"fp16", "int8(block=100, range=symmetric)", "int4(rounding=stochastic)", "int8(block=1)",
                              "fp16(checksum=false)"}) {
      for (const bool feedback : {false, true}) {
        for (const std::int64_t count : {32768, 32769, 9 * 32768 + 4321, (1 << 20) + 4321}) {
          const CompressionOptions options{.error_feedback = feedback, .seed = 5, .bucket = 3};
          CompressedReduction reduction(group.shared_from_this(), make_codec(codec), options);
          TwoRankReference wanted(codec, static_cast<std::size_t>(count));
          for (std::uint64_t step = 1; step <= 2; ++step) {
            // The group's memory in the first step, ordinary memory in the second.
            Tensor t = filled(group, count);
            if (step == 2) t = t.clone();
            reduction.allreduce(t, {.op = ReduceOp::avg}).wait(30s);
            const std::string what = codec + (" of " + std::to_string(count)) + (feedback ? " with feedback" : "");
            require(std::memcmp(t.bytes(), wanted.mean(step, options).data(), t.nbytes()) == 0, what);
            if (!feedback) continue;
            const std::vector<float>& kept = wanted.residuals[static_cast<std::size_t>(group.rank())];
            require(std::memcmp(reduction.residual().bytes(), kept.data(), t.nbytes()) == 0, what + ": residual");
          }
        }
      }
    }
  });
}

TEST_P(Compressed, SentBytesMatchFormula) {
  for (const int ranks : {1, 2, 3, 4}) {
    GetParam().spawn(ranks, [&](ProcessGroup& group) {
      const std::int64_t count = 12 * 32768;
      const auto n = static_cast<std::uint64_t>(ranks);
      const auto sent = [&](const std::string& codec) {
        CompressedReduction reduction(group.shared_from_this(), make_codec(codec));
        Tensor t = filled(group, count);
        reduction.allreduce(t).wait(30s);
        return reduction.stats();
      };
      const auto bytes = [&](std::uint64_t message) { return 2 * (n - 1) * (12 * message) / n; };
      const auto expect = [&](const std::string& codec, std::uint64_t message, double ratio) {
        const CompressionStats stats = sent(codec);
        require(stats.bytes_sent == bytes(message), codec + " sent " + std::to_string(stats.bytes_sent));
        require(ranks == 1 || stats.ratio >= ratio, codec + " has ratio " + std::to_string(stats.ratio));
      };
      expect("fp16", 32 + 2 * 32768, 1.999);
      expect("bf16", 32 + 2 * 32768, 1.999);
      expect("int8", 32 + 32768 + 64 * 8, 3.9);
      expect("int4", 32 + 16384 + 256 * 4, 7.5);
    });
  }
}

TEST_P(Compressed, ErrorFeedbackConverges) {
  for (const int ranks : {2, 3}) {
    GetParam().spawn(ranks, [&](ProcessGroup& group) {
      constexpr int kSteps = 50;
      constexpr std::int64_t kCount = 3000;
      CompressedReduction reduction(group.shared_from_this(), make_codec("int4"), {.error_feedback = true});
      std::vector<double> sum(kCount);
      for (int step = 0; step < kSteps; ++step) {
        Tensor t = filled(group, kCount);
        reduction.allreduce(t, {.op = ReduceOp::avg}).wait(30s);
        for (std::size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(t.data<float>()[i]);
      }
      // Without feedback the errors of equal steps would add up. With feedback only the last residual is missing.
      for (std::size_t i = 0; i < kCount; ++i) {
        const double off = std::abs(sum[i] / kSteps - exact_mean(ranks, static_cast<std::int64_t>(i)));
        require(off < 3 * rounding("int4") / kSteps,
                "element " + std::to_string(i) + " is off by " + std::to_string(off));
      }
      require(reduction.residual_norm() > 0, "the residual is zero");
    });
  }
}

TEST_P(Compressed, NonFiniteValuesStayInTheirBlockAndStep) {
  for (const int ranks : {2, 3}) {
    GetParam().spawn(ranks, [&](ProcessGroup& group) {
      for (const char* codec : {"fp16", "bf16", "int8", "int4"}) {
        CompressedReduction reduction(group.shared_from_this(), make_codec(codec), {.error_feedback = true});
        for (int step = 0; step < 3; ++step) {
          Tensor t = filled(group, 4096);
          if (step == 1 && group.rank() == 1) {
            t.data<float>()[7] = std::numeric_limits<float>::quiet_NaN();
            t.data<float>()[3000] = -std::numeric_limits<float>::infinity();
          }
          reduction.allreduce(t, {.op = ReduceOp::avg}).wait(30s);
          const float* x = t.data<float>();
          if (step == 1) {
            require(!std::isfinite(x[7]) && !std::isfinite(x[3000]), std::string(codec) + ": expected non-finite");
            require(std::isfinite(x[1500]), std::string(codec) + ": another block is not finite");
          } else {
            for (int i = 0; i < 4096; ++i) require(std::isfinite(x[i]), std::string(codec) + ": leaked into a step");
          }
        }
      }
    });
  }
}

TEST_P(Compressed, ReduceScatterRoundsOnce) {
  for (const int ranks : {1, 2, 3, 4}) {
    GetParam().spawn(ranks, [&](ProcessGroup& group) {
      constexpr std::int64_t kEach = 1001;
      CompressedReduction reduction(group.shared_from_this(), make_codec("fp16"));
      const Tensor input = filled(group, kEach * ranks).as_read_only();
      const Tensor output = Tensor::empty({kEach});
      reduction.reduce_scatter(output, input, {.op = ReduceOp::avg}).wait(30s);
      for (std::int64_t i = 0; i < kEach; ++i) {
        const double wanted = exact_mean(ranks, group.rank() * kEach + i);
        require(std::abs(static_cast<double>(output.data<float>()[i]) - wanted) <= 0x1p-11,
                "element " + std::to_string(i));
      }
      require(ranks == 1 || std::abs(reduction.stats().ratio - 2) < 0.1, "the ratio");
    });
  }
}

TEST_P(Compressed, ReduceScatterInPlaceMatchesOutOfPlace) {
  for (const int ranks : {1, 2, 3, 4}) {
    GetParam().spawn(ranks, [&](ProcessGroup& group) {
      for (const std::int64_t each : {5, 1001, 70'000}) {
        for (const DType dtype : {DType::f32, DType::f16}) {
          for (const ReduceOp& op : {ReduceOp::avg, ReduceOp::premul_sum(0.5)}) {
            const Tensor input = Tensor::empty({each * ranks}, dtype);
            testing::fill_with(input, [&](std::int64_t i) { return static_cast<double>(value(group.rank(), i)); });
            const Tensor apart = Tensor::empty({each}, dtype);
            const Tensor own = input.slice(0, group.rank() * each, (group.rank() + 1) * each);
            const Tensor before = input.clone();
            CompressedReduction reduction(group.shared_from_this(), make_codec("int8"));
            reduction.reduce_scatter(apart, input, {.op = op}).wait(30s);
            require(testing::first_difference(input, before) < 0, "the input was changed");
            CompressedReduction(group.shared_from_this(), make_codec("int8"))
                .reduce_scatter(own, input, {.op = op})
                .wait(30s);
            require(testing::first_difference(own, apart) < 0, std::to_string(each) + " values in place");
          }
        }
      }
      const Tensor input = filled(group, 4 * ranks + 2);
      CompressedReduction reduction(group.shared_from_this(), make_codec("int8"));
      EXPECT_THROW(reduction.reduce_scatter(input.slice(0, 1, 5), input.slice(0, 0, 4 * ranks)).wait(30s),
                   InvalidArgument);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Compressed, ::testing::Values(testing::threads_fixture(), testing::shm_fixture()),
                         [](const auto& test) { return test.param.name; });

TEST(CompressedReduction, AcceptsAnyFloatingPointTypeAndLayout) {
  testing::threads_fixture().spawn(3, [&](ProcessGroup& group) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f64, DType::f32}) {
      const Tensor wide = Tensor::full({4, 6}, group.rank() + 1, dtype);
      const Tensor columns = wide.slice(1, 0, 6, 2);
      group.allreduce(columns, make_codec("fp16"))->wait(30s);
      require(wide.slice(0, 0, 1).slice(1, 2, 3).item<double>() == 6, "the sum");
      require(wide.slice(0, 0, 1).slice(1, 3, 4).item<double>() == group.rank() + 1, "elements between the columns");
    }
  });
}

// On three ranks a compressed allreduce consists of two operations; the second starts when the first completes.
TEST(CompressedReduction, CompletesWithCoalescedWork) {
  testing::threads_fixture().spawn(3, [&](ProcessGroup& group) {
    for (int i = 0; i < 20; ++i) {
      const Tensor t = Tensor::full({100'000}, 1);
      group.start_coalescing();
      const WorkPtr own = group.allreduce(t, make_codec("fp16"));
      group.end_coalescing()->wait(30s);
      require(own->is_completed() && t.data<float>()[0] == 3, "the sum");
    }
  });
}

TEST(CompressedReduction, RejectsInvalidArguments) {
  testing::threads_fixture().spawn(1, [&](ProcessGroup& group) {
    const Tensor t = Tensor::full({4}, 1);
    EXPECT_THROW((void)group.allreduce(t, make_codec("fp16"), {.op = ReduceOp::max}), InvalidArgument);
    EXPECT_THROW((void)group.allreduce(Tensor::full({4}, 1, DType::i32), make_codec("fp16")), InvalidArgument);
    EXPECT_THROW((void)group.allreduce(t, nullptr), InvalidArgument) << "immediately, not in wait()";
    EXPECT_THROW((void)group.allreduce(t.as_read_only(), make_codec("fp16")), InvalidArgument);
    EXPECT_THROW(CompressedReduction(nullptr, make_codec("fp16")), InvalidArgument);
    EXPECT_THROW(CompressedReduction(group.shared_from_this(), nullptr), InvalidArgument);
    CompressedReduction reduction(group.shared_from_this(), make_codec("fp16"), {.error_feedback = true});
    reduction.allreduce(t).wait(10s);
    EXPECT_THROW(reduction.allreduce(Tensor::full({5}, 1)).wait(10s), InvalidArgument);
  });
}

TEST(CompressedReduction, DifferentCodecsAreDetected) {
  testing::threads_fixture().spawn(2, [&](ProcessGroup& group) {
    const Tensor t = filled(group, 1000);
    EXPECT_THROW(group.allreduce(t, make_codec(group.rank() ? "fp16" : "bf16"))->wait(10s), InvalidArgument);
    EXPECT_THROW(group.allreduce(t, make_codec(group.rank() ? "fp16" : "int8"))->wait(10s), Mismatch);
  });
}

}  // namespace
}  // namespace hookline
