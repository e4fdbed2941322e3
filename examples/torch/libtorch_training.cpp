// DistributedDataParallel for libtorch: hookline run -n 2 build/dev/examples/example_libtorch_training [hook spec]
#include <cstdio>
#include <memory>
#include <string>

#include <torch/torch.h>

#include <hookline/libtorch.hpp>

namespace {

struct Net : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 32));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(32, 3));
  torch::Tensor forward(const torch::Tensor& x) { return torch::log_softmax(second(torch::relu(first(x))), 1); }
};

/// Random rows, sharded over the ranks. The target of a row is the index of the largest of its first three numbers.
class Rows : public torch::data::datasets::Dataset<Rows> {
 public:
  Rows(int rank, int size) {
    torch::manual_seed(7);
    const torch::Tensor all = torch::randn({240, 8});
    rows_ = all.slice(0, rank, all.size(0), size);
  }
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor row = rows_[static_cast<std::int64_t>(index)];
    return {row, row.slice(0, 0, 3).argmax()};
  }
  std::optional<std::size_t> size() const override { return rows_.size(0); }

 private:
  torch::Tensor rows_;
};

}  // namespace

int main(int count, char** arguments) {
  torch::set_num_threads(1);
  const std::string hook = count > 1 ? arguments[1] : "";
  const auto group = hookline::init_process_group();
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Rows(group->rank(), group->size()).map(torch::data::transforms::Stack<>()),
      static_cast<std::size_t>(24 / group->size()));
  torch::manual_seed(group->rank());  // hookline broadcasts rank 0's parameters

  auto net = std::make_shared<Net>();
  hookline::libtorch::DistributedDataParallel ddp(net, group, {.hook = hook});
  torch::optim::SGD sgd(net->parameters(), 0.5);
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (auto& batch : *loader) {
      sgd.zero_grad();
      torch::nll_loss(ddp(batch.data), batch.target).backward();  // gradients are averaged when it returns
      sgd.step();
    }
  }

  const torch::NoGradGuard no_grad;
  double right = 0;
  for (auto& batch : *loader) right += net->forward(batch.data).argmax(1).eq(batch.target).sum().item<double>();
  double sum = 0;
  for (const torch::Tensor& p : net->parameters()) sum += p.abs().sum().item<double>();
  std::printf("accuracy %.1f %%, weights %.9g, %llu bytes sent in the last step\n", right * 100 * group->size() / 240,
              sum, static_cast<unsigned long long>(ddp.stats().bytes_sent));
}
