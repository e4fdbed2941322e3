// A rank of a Hookline group on shm. The same processes also measure the memory bandwidth bound: each rank scales a
// private buffer in place.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include <hookline/hookline.hpp>

#include "measure.hpp"

namespace {

using namespace hookline;

__attribute__((target_clones("avx512f", "avx2", "default"))) void scale(float* x, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

class HooklineSystem final : public bench::System {
 public:
  explicit HooklineSystem(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  void barrier() override { group_->barrier()->wait(); }
  double max_over_ranks(double value) override {
    const Tensor slowest = Tensor::full({1}, value, DType::f64);
    group_->allreduce(slowest, {.op = ReduceOp::max})->wait();
    return slowest.item<double>();
  }
  bench::Prepared prepare(const bench::Row& row) override;

 private:
  Tensor buffer(const bench::Row& row, std::int64_t count) {
    const Tensor result = row.memory == "shared" ? group_->empty({count}) : Tensor::empty({count});
    result.fill(0);
    return result;
  }
  bench::Prepared prepare_in_place(const bench::Row& row);
  bench::Prepared prepare_partitioned(const bench::Row& row);
  bench::Prepared prepare_rooted(const bench::Row& row);

  const std::shared_ptr<ProcessGroup> group_;
};

std::function<void()> make_rewrite(const Tensor& tensor) {
  return [=] { tensor.fill(0); };
}

std::vector<Tensor> split_by_rank(const Tensor& whole, int ranks) {
  std::vector<Tensor> parts;
  const std::int64_t count = whole.numel() / ranks;
  for (int r = 0; r < ranks; ++r) parts.push_back(whole.slice(0, r * count, (r + 1) * count));
  return parts;
}

bench::Prepared HooklineSystem::prepare(const bench::Row& row) {
  if (row.op == "barrier") return {[this] { group_->barrier()->wait(); }, [] {}};
  if (row.op == "gather" || row.op == "scatter") return prepare_rooted(row);
  if (row.op == "allgather" || row.op == "reduce_scatter" || row.op == "alltoall") return prepare_partitioned(row);
  return prepare_in_place(row);
}

bench::Prepared HooklineSystem::prepare_in_place(const bench::Row& row) {
  const std::int64_t count = std::max<std::int64_t>(row.bytes / 4, 1);
  const Tensor t = buffer(row, count);
  auto& g = *group_;
  if (row.op == "scale") return {[=] { scale(t.data<float>(), count, 1.0001f); }, make_rewrite(t)};
  if (row.op == "allreduce") return {[=, &g] { g.allreduce(t)->wait(); }, make_rewrite(t)};
  if (row.op == "reduce") return {[=, &g] { g.reduce(t)->wait(); }, make_rewrite(t)};
  if (row.op == "broadcast") return {[=, &g] { g.broadcast(t)->wait(); }, make_rewrite(t)};
  if (row.op == "pingpong") {
    const int peer = g.rank() ^ 1;
    const auto send_then_receive = [=, &g] {
      g.send(t, peer)->wait();
      g.recv(t, peer)->wait();
    };
    const auto receive_then_send = [=, &g] {
      g.recv(t, peer)->wait();
      g.send(t, peer)->wait();
    };
    if (g.rank() % 2 == 0) return {send_then_receive, make_rewrite(t)};
    return {receive_then_send, make_rewrite(t)};
  }
  throw std::invalid_argument("no operation " + row.op);
}

bench::Prepared HooklineSystem::prepare_partitioned(const bench::Row& row) {
  const std::int64_t count = bench::elements_per_rank(row, group_->size());
  const Tensor whole = buffer(row, count * group_->size());
  auto& g = *group_;
  if (row.op == "alltoall") {
    const Tensor out = buffer(row, count * group_->size());
    return {[=, &g] { g.alltoall_base(out, whole)->wait(); }, make_rewrite(whole)};
  }
  const Tensor mine = buffer(row, count);
  if (row.op == "allgather") return {[=, &g] { g.allgather_into_tensor(whole, mine)->wait(); }, make_rewrite(mine)};
  return {[=, &g] { g.reduce_scatter_tensor(mine, whole)->wait(); }, make_rewrite(whole)};
}

bench::Prepared HooklineSystem::prepare_rooted(const bench::Row& row) {
  const std::int64_t count = bench::elements_per_rank(row, group_->size());
  const Tensor mine = buffer(row, count);
  const Tensor whole = buffer(row, group_->rank() == 0 ? count * group_->size() : 0);
  const std::vector<Tensor> parts = group_->rank() == 0 ? split_by_rank(whole, group_->size()) : std::vector<Tensor>();
  auto& g = *group_;
  if (row.op == "gather") return {[=, &g] { g.gather(parts, mine)->wait(); }, make_rewrite(mine)};
  return {[=, &g] { g.scatter(mine, parts)->wait(); }, make_rewrite(whole)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  HooklineSystem system(init_process_group());
  return bench::serve(system, argv[1]);
}
