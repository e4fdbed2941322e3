// A rank of an MPI job.
#include <mpi.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "measure.hpp"

namespace {

// A buffer with 64-byte alignment and mapped pages, like those of the other systems.
struct Buffer {
  explicit Buffer(std::int64_t elements) : count(static_cast<int>(elements)) {
    const std::size_t bytes = (static_cast<std::size_t>(elements) * 4 + 63) / 64 * 64;
    memory.reset(static_cast<float*>(std::aligned_alloc(64, std::max<std::size_t>(bytes, 64))), std::free);
    rewrite();
  }
  void rewrite() const { std::fill_n(memory.get(), count, 0.0f); }
  float* data() const { return memory.get(); }

  std::shared_ptr<float> memory;
  int count;
};

class MpiSystem final : public bench::System {
 public:
  MpiSystem() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double max_over_ranks(double value) override {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }
  bench::Prepared prepare(const bench::Row& row) override;

 private:
  bench::Prepared prepare_in_place(const bench::Row& row) const;
  bench::Prepared prepare_partitioned(const bench::Row& row) const;

  int rank_ = 0;
  int size_ = 0;
};

std::function<void()> make_rewrite(const Buffer& buffer) {
  return [=] { buffer.rewrite(); };
}

bench::Prepared MpiSystem::prepare(const bench::Row& row) {
  if (row.op == "barrier") return {[] { MPI_Barrier(MPI_COMM_WORLD); }, [] {}};
  const bool parts = row.op == "allgather" || row.op == "gather" || row.op == "scatter" || row.op == "reduce_scatter" ||
                     row.op == "alltoall";
  return parts ? prepare_partitioned(row) : prepare_in_place(row);
}

bench::Prepared MpiSystem::prepare_in_place(const bench::Row& row) const {
  const Buffer b(std::max<std::int64_t>(row.bytes / 4, 1));
  const auto world = MPI_COMM_WORLD;
  if (row.op == "allreduce") {
    return {[=] { MPI_Allreduce(MPI_IN_PLACE, b.data(), b.count, MPI_FLOAT, MPI_SUM, world); }, make_rewrite(b)};
  }
  if (row.op == "reduce" && rank_ == 0) {
    return {[=] { MPI_Reduce(MPI_IN_PLACE, b.data(), b.count, MPI_FLOAT, MPI_SUM, 0, world); }, make_rewrite(b)};
  }
  if (row.op == "reduce") {
    return {[=] { MPI_Reduce(b.data(), nullptr, b.count, MPI_FLOAT, MPI_SUM, 0, world); }, make_rewrite(b)};
  }
  if (row.op == "broadcast") return {[=] { MPI_Bcast(b.data(), b.count, MPI_FLOAT, 0, world); }, make_rewrite(b)};
  if (row.op == "pingpong") {
    const int peer = rank_ ^ 1;
    const bool first = rank_ % 2 == 0;
    return {[=] {
              if (first) MPI_Send(b.data(), b.count, MPI_FLOAT, peer, 0, world);
              MPI_Recv(b.data(), b.count, MPI_FLOAT, peer, 0, world, MPI_STATUS_IGNORE);
              if (!first) MPI_Send(b.data(), b.count, MPI_FLOAT, peer, 0, world);
            },
            make_rewrite(b)};
  }
  throw std::invalid_argument("no operation " + row.op);
}

bench::Prepared MpiSystem::prepare_partitioned(const bench::Row& row) const {
  const int count = static_cast<int>(bench::elements_per_rank(row, size_));
  const Buffer whole(std::int64_t{count} * size_);
  const Buffer mine(row.op == "alltoall" ? std::int64_t{count} * size_ : count);
  const auto world = MPI_COMM_WORLD;
  if (row.op == "allgather") {
    return {[=] { MPI_Allgather(mine.data(), count, MPI_FLOAT, whole.data(), count, MPI_FLOAT, world); },
            make_rewrite(mine)};
  }
  if (row.op == "gather") {
    return {[=] { MPI_Gather(mine.data(), count, MPI_FLOAT, whole.data(), count, MPI_FLOAT, 0, world); },
            make_rewrite(mine)};
  }
  if (row.op == "scatter") {
    return {[=] { MPI_Scatter(whole.data(), count, MPI_FLOAT, mine.data(), count, MPI_FLOAT, 0, world); },
            make_rewrite(whole)};
  }
  if (row.op == "reduce_scatter") {
    return {[=] { MPI_Reduce_scatter_block(whole.data(), mine.data(), count, MPI_FLOAT, MPI_SUM, world); },
            make_rewrite(whole)};
  }
  return {[=] { MPI_Alltoall(whole.data(), count, MPI_FLOAT, mine.data(), count, MPI_FLOAT, world); },
          make_rewrite(whole)};
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
  MpiSystem system;
  const int result = bench::serve(system, argv[1]);
  MPI_Finalize();
  return result;
}
