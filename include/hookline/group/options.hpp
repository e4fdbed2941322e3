// Options of the operations. Aggregates with defaults, for designated initializers.
//
// All are trivially destructible: in an expression with co_await, gcc 12 destroys temporaries of other types twice.
#pragma once

#include <optional>
#include <type_traits>

#include <hookline/core/deadline.hpp>
#include <hookline/core/reduce_op.hpp>

namespace hookline {

struct AllreduceOptions {
  ReduceOp op = ReduceOp::sum;
  std::optional<Milliseconds> timeout = std::nullopt;  ///< default, here and below: the group's timeout
};
struct ReduceOptions {
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::optional<Milliseconds> timeout = std::nullopt;
};
struct BroadcastOptions {
  int root = 0;
  std::optional<Milliseconds> timeout = std::nullopt;
};
struct AllgatherOptions {
  std::optional<Milliseconds> timeout = std::nullopt;
};
struct P2POptions {
  int tag = 0;
  std::optional<Milliseconds> timeout = std::nullopt;
};
struct MonitoredBarrierOptions {
  std::optional<Milliseconds> timeout = std::nullopt;
  bool wait_all_ranks = false;  ///< name every missing rank, not only the first
};
using GatherOptions = BroadcastOptions;
using ScatterOptions = BroadcastOptions;
using ReduceScatterOptions = AllreduceOptions;
using AlltoallOptions = AllgatherOptions;
using BarrierOptions = AllgatherOptions;

static_assert(std::is_trivially_destructible_v<AllreduceOptions> && std::is_trivially_destructible_v<ReduceOptions> &&
              std::is_trivially_destructible_v<BroadcastOptions> &&
              std::is_trivially_destructible_v<AllgatherOptions> && std::is_trivially_destructible_v<P2POptions> &&
              std::is_trivially_destructible_v<MonitoredBarrierOptions>);

}  // namespace hookline
