// The names of the room group in use: every operation with its options, parts of a group, and groups that watch.
// hookline run -n 2 build/dev/examples/example_names_group
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;
using std::chrono::seconds;

namespace {

void operations(hl::ProcessGroup& group) {
  const int rank = group.rank();
  const auto ranks = std::size_t(group.size());
  const hl::Tensor one = hl::Tensor::full({2}, rank);
  const std::vector<hl::Tensor> list(ranks, hl::Tensor::full({2}, 1));
  std::vector<hl::Tensor> parts(ranks);
  for (hl::Tensor& part : parts) part = hl::Tensor::empty({2});

  // Options are plain values: {.op = …} in the place of the argument does.
  group.allreduce(one, hl::AllreduceOptions{.op = hl::ReduceOp::max, .timeout = seconds(20)})->wait();
  group.reduce(one, hl::ReduceOptions{.op = hl::ReduceOp::sum, .root = 0})->wait();
  group.broadcast(one, hl::BroadcastOptions{.root = 0})->wait();
  expect(one.data<float>()[1] == float((ranks - 1) * ranks));
  group.allgather(parts, one, hl::AllgatherOptions{.timeout = seconds(20)})->wait();
  const bool root = rank == 0;
  group.gather(root ? parts : std::vector<hl::Tensor>(), one, hl::GatherOptions{.root = 0})->wait();
  group.scatter(one, root ? list : std::vector<hl::Tensor>(), hl::ScatterOptions{.root = 0})->wait();
  group.reduce_scatter(one, list, hl::ReduceScatterOptions{.op = hl::ReduceOp::sum})->wait();
  expect(one.data<float>()[0] == float(ranks));
  group.alltoall(parts, list, hl::AlltoallOptions{})->wait();
  if (rank == 1) group.send(one, 0, hl::MessageOptions{.tag = 7})->wait();
  if (root && ranks > 1) group.recv(parts[0], 1, hl::MessageOptions{.tag = 7})->wait();
  group.barrier(hl::BarrierOptions{.timeout = seconds(20)})->wait();
  group.monitored_barrier(hl::MonitoredBarrierOptions{.timeout = seconds(20), .wait_all_ranks = true});
}

void compression(const std::shared_ptr<hl::ProcessGroup>& group) {
  const hl::CompressionOptions options = {.error_feedback = true, .seed = 1};
  hl::CompressedReduction reduction(group, hl::make_codec("int8"), options);
  const hl::Tensor values = hl::Tensor::full({4096}, 1);
  reduction.allreduce(values, {.op = hl::ReduceOp::avg}).wait();
  const hl::CompressionStats& stats = reduction.stats();
  expect(group->size() == 1 || stats.ratio > 3);
}

void watched(const std::shared_ptr<hl::ProcessGroup>& group, const std::shared_ptr<hl::Store>& shared) {
  const hl::Tensor one = hl::Tensor::full({2}, 1);
  // Compares what the ranks call, remembers it, and refuses to send NaN. The store is for the comparing alone.
  const auto store = std::make_shared<hl::PrefixStore>("compared calls", shared);
  const auto careful = hl::recorded(hl::nan_checked(hl::checked(group, store)), hl::RecordOptions{.capacity = 8});
  careful->allreduce(one)->wait();
  expect(hl::records(*careful).find("allreduce") != std::string::npos);
  const auto path = std::filesystem::temp_directory_path() / ("names_" + std::to_string(group->rank()) + ".json");
  std::filesystem::remove(hl::dump_records(*careful, path));  // `hookline debug` reads such files

  // Runs everything twice; two groups may add in another order.
  std::vector<int> all(std::size_t(group->size()));
  for (int rank = 0; rank < group->size(); ++rank) all[std::size_t(rank)] = rank;
  hl::compared(group, group->new_group(all), hl::CompareOptions{.tolerance = 1e-6})->allreduce(one)->wait();
}

}  // namespace

int main() {
  const hl::Rendezvous job = hl::rendezvous();  // without a store, init_process_group does this itself
  const hl::InitOptions options = {
      .backend = "shm", .rank = job.rank, .world_size = job.world_size, .timeout = seconds(60), .store = job.store};
  const auto group = hl::init_process_group(options);

  std::size_t bytes = 0;
  const hl::OnCompletionHook count = [&](const hl::WorkInfo& info) { bytes += info.bytes; };
  group->register_on_completion_hook(count);
  operations(*group);
  compression(group);
  group->wait_for_hooks();
  std::printf("rank %d of %d gave %zu bytes\n", group->rank(), group->size(), bytes);

  expect(hl::host_group(group)->size() == group->size());  // the ranks of this host
  expect(hl::group_of_size(group, 1)->size() == 1);        // rank 0, rank 1, …
  watched(group, job.store);
}
