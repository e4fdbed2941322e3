// DistributedDataParallel for libtorch, with ranks as threads: gradients, buffers, unused parameters, errors.
#include <cmath>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <hookline/libtorch.hpp>

#include "group/rank_threads.hpp"

namespace hookline::libtorch {
namespace {

using hookline::testing::make_thread_groups;
using hookline::testing::on_ranks;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr double kByte = 1.0 / (1 << 20);  // one byte in MiB, the unit of bucket_cap_mb

/// Runs `body` on a thread for each rank.
void on_all_ranks(const std::function<void(const std::shared_ptr<ProcessGroup>&)>& body) {
  const auto groups = make_thread_groups(kRanks);
  const auto errors = on_ranks(groups, [&](ProcessGroup&, int rank) { body(groups[static_cast<std::size_t>(rank)]); });
  EXPECT_THAT(errors, Each(""));
}

struct Net : torch::nn::Module {
  torch::nn::Linear used = register_module("used", torch::nn::Linear(3, 2));
  torch::nn::Linear other = register_module("other", torch::nn::Linear(3, 2));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(2));
  at::Tensor forward(const at::Tensor& x, bool both) {
    const at::Tensor out = used(x);
    return norm(both ? out + other(x) : out);
  }
};

at::Tensor inputs_of(int rank) { return at::arange(12).reshape({4, 3}).to(at::kFloat) * (rank + 1); }

/// Returns the mean of the ranks' gradients, computed serially.
template <class Module>
std::vector<at::Tensor> means(Module& module, const std::function<at::Tensor(Module&, int rank)>& loss) {
  std::vector<at::Tensor> sums;
  for (int rank = 0; rank < kRanks; ++rank) {
    module.zero_grad();
    loss(module, rank).backward();
    std::size_t i = 0;
    for (const at::Tensor& p : module.parameters()) {
      const at::Tensor part = (p.grad().defined() ? p.grad().to_dense() : at::zeros_like(p)) / kRanks;
      if (rank == 0) sums.push_back(part);
      else sums[i] = sums[i] + part;
      ++i;
    }
  }
  return sums;
}

template <class Module>
void expect_gradients(const Module& module, const std::vector<at::Tensor>& expected) {
  const auto parameters = module.parameters();
  ASSERT_EQ(parameters.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(parameters[i].grad().defined());
    EXPECT_TRUE(at::allclose(parameters[i].grad().to_dense(), expected[i], 1e-5, 1e-6));
  }
}

TEST(DataParallel, BackwardAveragesGradients) {
  torch::nn::Sequential reference(torch::nn::Linear(3, 4), torch::nn::Linear(4, 1));
  const std::function<at::Tensor(torch::nn::SequentialImpl&, int)> loss = [](auto& net, int rank) {
    return net.forward(inputs_of(rank)).pow(2).sum();
  };
  const auto expected = means(*reference, loss);
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Linear(4, 1));
    if (group->rank() == 0) {
      const torch::NoGradGuard no_grad;
      const auto from = reference->parameters();
      for (std::size_t i = 0; i < from.size(); ++i) net->parameters()[i].copy_(from[i]);
    }
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 8 * kByte});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(inputs_of(group->rank())).pow(2).sum().backward();
      expect_gradients(*net, expected);
    }
    EXPECT_GT(ddp.stats().buckets.size(), 1U);
    {
      const auto guard = ddp.no_sync();
      net->zero_grad();
      ddp(inputs_of(group->rank())).pow(2).sum().backward();
    }
    EXPECT_FALSE(at::allclose(net->parameters()[0].grad(), expected[0]));
    ddp(inputs_of(group->rank())).pow(2).sum().backward();
    EXPECT_TRUE(at::allclose(net->parameters()[0].grad(), 2 * expected[0], 1e-5));
    ddp.replace_comm_hook("noop");
    net->zero_grad();
    ddp(inputs_of(group->rank())).pow(2).sum().backward();
    EXPECT_FALSE(at::allclose(net->parameters()[0].grad(), expected[0]));
    EXPECT_EQ(ddp.stats().bytes_sent, 0U);
  });
}

TEST(DataParallel, HookIsASpecOrAnObject) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto train = [&](auto& ddp, torch::nn::Linear& net) {
      net->zero_grad();
      ddp(inputs_of(group->rank())).pow(2).sum().backward();
    };
    torch::nn::Linear net(3, 2);
    int calls = 0;
    std::weak_ptr<CommHookInterface> given;
    {
      const HookPtr counting = make_hook(
          [&calls](ProcessGroup&, GradBucket& bucket) -> Future<Tensor> {
            ++calls;
            co_return bucket.buffer();
          },
          group, {.name = "counting"});
      given = counting;
      DistributedDataParallel ddp(net, group, {.hook = counting});
      train(ddp, net);
      EXPECT_EQ(calls, 1);
      EXPECT_EQ(ddp.stats().hook, "counting");
      ddp.replace_comm_hook("fp16");
      train(ddp, net);
      EXPECT_EQ(ddp.stats().hook, "fp16");
      ddp.replace_comm_hook(counting);
      train(ddp, net);
      EXPECT_EQ(calls, 2);
      ddp.replace_comm_hook(nullptr);
      EXPECT_EQ(given.use_count(), 1) << "only the variable above";
    }
    EXPECT_TRUE(given.expired());
    torch::nn::Linear other(3, 2);
    DistributedDataParallel ddp(other, group, {.hook = std::string("noop"), .bucket_cap_mb = 8 * kByte});
    train(ddp, other);
    EXPECT_EQ(ddp.stats().hook, "noop");
    EXPECT_THROW((DistributedDataParallel(torch::nn::Linear(3, 2), group, {.hook = "no_such_hook"})), InvalidArgument);
    for (const double cap : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
      EXPECT_THROW((DistributedDataParallel(torch::nn::Linear(3, 2), group, {.bucket_cap_mb = cap})), InvalidArgument);
    }
  });
}

TEST(DataParallel, BroadcastsBuffersAndReducesUnusedParameters) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Net>();
    net->norm->running_mean.fill_(group->rank() + 5);
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    EXPECT_EQ(net->norm->running_mean[0].item<float>(), 5);
    ddp(inputs_of(0), group->rank() == 1).pow(3).sum().backward();
    EXPECT_TRUE(net->other->weight.grad().defined());  // also on the rank that did not use it
    const Tensor sum = tensor_view(net->other->weight.grad().clone());
    group->allreduce(sum)->wait();
    EXPECT_TRUE(at::allclose(torch_view(sum), 2 * net->other->weight.grad()));
  });
}

TEST(DataParallel, BroadcastsBuffersAfterASynchronizedPass) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Net>();
    const at::Tensor& mean = net->norm->running_mean;
    const auto is_rank_zeros = [&] {
      const Tensor of_zero = tensor_view(mean.clone());
      group->broadcast(of_zero)->wait();
      return at::equal(torch_view(of_zero), mean);
    };
    DistributedDataParallel ddp(net, group);
    ddp(inputs_of(group->rank()), true).pow(2).sum().backward();
    EXPECT_EQ(is_rank_zeros(), group->rank() == 0);
    net->eval();
    const at::NoGradGuard no_gradients;
    ddp(inputs_of(group->rank()), true);
    EXPECT_TRUE(is_rank_zeros());
    mean.fill_(group->rank() + 5);
    ddp(inputs_of(group->rank()), true);  // no broadcast after a pass without gradients
    EXPECT_EQ(mean[0].item<float>(), group->rank() + 5);
  });
}

TEST(DataParallel, BroadcastsFrozenParameters) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Net>();
    const at::Tensor frozen = net->used->weight.detach().fill_(group->rank() + 5);
    net->used->weight.requires_grad_(false);
    DistributedDataParallel ddp(net, group);
    EXPECT_EQ(frozen[0][0].item<float>(), 5);
    ddp(inputs_of(group->rank()), true).pow(2).sum().backward();
    EXPECT_FALSE(net->used->weight.grad().defined());
    EXPECT_TRUE(net->used->bias.grad().defined());
  });
}

TEST(DataParallel, BroadcastsFrozenParametersOfAnyDtype) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    for (const at::ScalarType type : {at::kFloat8_e4m3fn, at::kUInt16, at::kComplexFloat, at::kBool}) {
      const auto net = std::make_shared<Net>();
      const at::Tensor odd = net->register_parameter("odd", at::full({3}, group->rank() == 0).to(type), false);
      const at::Tensor buffer = net->register_buffer("buffer", odd.clone());
      const DistributedDataParallel ddp(net, group);
      EXPECT_TRUE(at::equal(odd.to(at::kFloat), at::ones({3}))) << type;
      EXPECT_TRUE(at::equal(buffer.to(at::kFloat), at::ones({3}))) << type;
    }
  });
}

TEST(DataParallel, NamesMismatchedFrozenParametersAndBuffers) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Net>();
    if (group->rank() == 1) net->norm->running_mean.set_(at::zeros({20}));
    EXPECT_THAT(
        [&] { DistributedDataParallel(net, group); },
        ::testing::ThrowsMessage<Mismatch>(HasSubstr(
            "rank 0 has buffer 'norm.running_mean' float32[2], rank 1 has buffer 'norm.running_mean' float32[20]")));
    const auto other = std::make_shared<Net>();
    if (group->rank() == 0) other->used->weight.requires_grad_(false);
    EXPECT_THAT([&] { DistributedDataParallel(other, group); },
                ::testing::ThrowsMessage<Mismatch>(HasSubstr("parameter 'used.weight' float32[2, 3] frozen")));
  });
}

/// A module whose gradient is the factor. Its output is a nested structure of tensors and other values.
struct Scaled : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", at::ones({1}));
  std::tuple<std::vector<at::Tensor>, int> forward(double factor) { return {{weight * factor}, 1}; }
  double gradient() const { return weight.grad()[0].item<double>(); }
};

TEST(DataParallel, NoSyncAppliesToTheForwardPass) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const double mine = group->rank() + 1;
    const auto net = std::make_shared<Scaled>();
    DistributedDataParallel ddp(net, group);
    const auto forward = [&] { return std::get<0>(ddp(mine))[0]; };
    at::Tensor inside;
    {
      const auto guard = ddp.no_sync();
      inside = forward();
    }
    inside.backward();
    EXPECT_EQ(net->gradient(), mine) << "a forward pass inside of no_sync";
    net->zero_grad();
    const at::Tensor outside = forward();
    {
      const auto guard = ddp.no_sync();
      outside.backward();
    }
    EXPECT_EQ(net->gradient(), 1.5) << "a forward pass outside of it";
    net->zero_grad();
    {
      const auto guard = ddp.no_sync();
      inside = forward();
    }
    (inside + forward()).backward();
    EXPECT_EQ(net->gradient(), 3) << "one pass of both: the sum is averaged";
  });
}

TEST(DataParallel, NamesMismatchedStepIds) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Scaled>();
    DistributedDataParallel ddp(net, group);
    ddp.set_step_id(7);
    std::get<0>(ddp(1))[0].backward();
    ddp.set_step_id(8 + group->rank());
    EXPECT_THAT([&] { std::get<0>(ddp(1))[0].backward(); },
                ::testing::ThrowsMessage<Mismatch>(::testing::AllOf(HasSubstr("step_id 8"), HasSubstr("step_id 9"))));
  });
}

/// A module with two weights. Each pass uses one of them, whose gradient is the factor.
struct Branches : torch::nn::Module {
  at::Tensor a = register_parameter("a", at::ones({2}));
  at::Tensor b = register_parameter("b", at::ones({2}));
  at::Tensor forward(bool first, double factor) { return (first ? a : b) * factor; }
  static double of(const at::Tensor& p) { return p.grad().defined() ? p.grad()[0].item<double>() : -1; }
  void expect(double first, double second) const {
    EXPECT_EQ(of(a), first);
    EXPECT_EQ(of(b), second);
  }
};

TEST(DataParallel, ReducesAccumulatedGradients) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const double mine = group->rank() + 1;
    const auto net = std::make_shared<Branches>();
    DistributedDataParallel ddp(net, group, {.find_unused_parameters = true});
    ddp(true, mine).sum().backward();
    net->expect(1.5, -1);
    ddp(group->rank() == 0, mine).sum().backward();
    net->expect(2, 1);
    net->zero_grad(false);
    ddp(group->rank() == 0, mine).sum().backward();
    net->expect(0.5, 1);
    {
      const auto guard = ddp.no_sync();
      ddp(true, mine).sum().backward();
    }
    ddp(false, mine).sum().backward();
    net->expect(2, 2.5);
    net->a.mutable_grad().fill_(mine);
    ddp(false, mine).sum().backward();
    net->expect(mine, 4);  // unused on all ranks: unchanged
  });
}

TEST(DataParallel, StaticGraphMayDifferAcrossRanks) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Branches>();
    DistributedDataParallel ddp(net, group, {.bucket_cap_mb = 4 * kByte, .static_graph = true});
    for (int step = 0; step < 4; ++step) {
      net->zero_grad(step < 2);
      ddp(group->rank() == 0, group->rank() + 1).sum().backward();
      net->expect(0.5, 1);
    }
  });
}

TEST(DataParallel, RecoversFromAFailedBackwardPass) {
  struct Chain : Branches {
    bool fails = false;
    at::Tensor forward(double factor) {
      const at::Tensor middle = a * factor;
      middle.register_hook([this](const at::Tensor&) {
        if (fails) throw std::domain_error("a gradient is not finite");
      });
      return middle * b;
    }
  };
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Chain>();
    DistributedDataParallel whole(net, group);
    for (int step = 0; step < 2; ++step) {
      net->fails = true;
      EXPECT_THROW(whole(group->rank() + 1).sum().backward(), std::exception);
      net->fails = false;
      net->zero_grad();
      whole(group->rank() + 1).sum().backward();
      net->expect(1.5, 1.5);
    }
    const auto other = std::make_shared<Chain>();
    DistributedDataParallel parts(other, group, {.bucket_cap_mb = 4 * kByte});
    other->fails = true;
    EXPECT_THROW(parts(1).sum().backward(), std::exception);
    EXPECT_THAT([&] { parts(1); }, ::testing::ThrowsMessage<InvalidArgument>(
                                       HasSubstr("Expected to have finished reduction in the prior")));
  });
}

TEST(DataParallel, SparseGradients) {
  struct Embedding : torch::nn::Module {
    torch::nn::Embedding table =
        register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
    at::Tensor forward(const at::Tensor& x) { return table(x); }
  };
  Embedding reference;
  const std::function<at::Tensor(Embedding&, int)> loss = [](auto& net, int rank) {
    return net.forward(at::tensor({1, 3 + rank, 1})).sum();
  };
  const auto expected = means(reference, loss);
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    const auto net = std::make_shared<Embedding>();
    DistributedDataParallel ddp(net, group);
    ddp(at::tensor({1, 3 + group->rank(), 1})).sum().backward();
    EXPECT_TRUE(net->table->weight.grad().is_sparse());
    expect_gradients(*net, expected);
  });
}

TEST(DataParallel, UnevenInputs) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Linear net(3, 1);
    DistributedDataParallel ddp(net, group);
    ddp.join([&] {
      for (int step = 0; step < 1 + 2 * group->rank(); ++step) ddp(inputs_of(group->rank())).sum().backward();
    });
    EXPECT_EQ(ddp.stats().step, 3U);
  });
}

TEST(DataParallel, JoinDividesByActiveRanks) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    for (const bool initial : {true, false}) {
      torch::nn::Linear net(3, 1);
      DistributedDataParallel ddp(net, group);
      const auto steps = [&] {
        for (int step = 0; step < 1 + group->rank(); ++step) {
          net->zero_grad();
          ddp(inputs_of(group->rank())).sum().backward();
        }
      };
      ddp.join(steps, {.divide_by_initial_world_size = initial});
      if (group->rank() == 1) {
        EXPECT_TRUE(at::allclose(net->weight.grad()[0], inputs_of(1).sum(0) / (initial ? 2 : 1)));
      }
    }
  });
}

TEST(DataParallel, BackwardThrowsErrors) {
  on_all_ranks([&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Linear net(3, 1);
    EXPECT_THROW(DistributedDataParallel(net, group, {.hook = "sparkle"}), InvalidArgument);
    EXPECT_THROW(DistributedDataParallel(net, std::shared_ptr<ProcessGroup>()), InvalidArgument);
    DistributedDataParallel ddp(net, group);
    if (group->rank() == 0) {
      try {
        ddp(inputs_of(0)).sum().backward();
        ADD_FAILURE() << "no error";
      } catch (const Aborted& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1 has had enough"));
      }
    } else {
      group->abort("rank 1 has had enough");
    }
  });
}

TEST(DataParallel, ParametersMayOutliveTheWrapper) {
  const auto group = make_thread_groups(1).front();
  torch::nn::Linear net(3, 1);
  {
    const DistributedDataParallel gone(net, group);
  }
  net(inputs_of(0)).sum().backward();
  EXPECT_TRUE(net->weight.grad().defined());
}

TEST(TensorViews, ShareMemoryAndRejectUnsupportedTensors) {
  const at::Tensor tensor = at::zeros({2, 3}).t();
  const Tensor view = tensor_view(tensor);
  view.fill(4);
  EXPECT_EQ(tensor.sum().item<float>(), 24);
  EXPECT_EQ(torch_view(view).data_ptr(), tensor.data_ptr());
  EXPECT_THROW(tensor_view(at::Tensor()), InvalidArgument);
  EXPECT_THROW(tensor_view(at::zeros({2}).to_sparse()), Unsupported);
  EXPECT_THROW(tensor_view(at::zeros({2}, at::kComplexFloat).conj()), Unsupported);
  EXPECT_THROW(tensor_view(at::zeros({2}, at::kComplexFloat)), Unsupported);
}

}  // namespace
}  // namespace hookline::libtorch
