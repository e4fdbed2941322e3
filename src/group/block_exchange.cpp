// The ways of an exchange, tried from the shortest on.
#include "group/block_exchange.hpp"

#include <cstring>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline::group {
namespace {

/// Null where the group does not have the operation; then no rank of it has.
WorkPtr try_to_run(ProcessGroup& group, Collective collective) {
  try {
    return group.run(std::move(collective));
  } catch (const Unsupported&) {
    return nullptr;
  }
}

}  // namespace

BlockExchange BlockExchange::gather(ProcessGroup& group, const Tensor& give, std::optional<Milliseconds> timeout) {
  BlockExchange made;
  made.ranks_ = static_cast<std::size_t>(group.size());
  made.block_bytes_ = made.stride_ = give.nbytes();
  made.sent_bytes_ = give.nbytes() * (made.ranks_ - 1);
  made.received_ = Tensor::empty({give.numel() * group.size()}, DType::u8);
  Collective whole;
  whole.type = OpType::allgather_into_tensor;
  whole.inputs.push_back(give);
  whole.outputs.push_back(made.received_);
  whole.timeout = timeout;
  made.work_ = try_to_run(group, whole);
  if (made.work_) return made;

  Collective list = whole;
  list.type = OpType::allgather;
  list.outputs.clear();
  for (int r = 0; r < group.size(); ++r) {
    list.outputs.push_back(made.received_.slice(0, r * give.numel(), (r + 1) * give.numel()));
  }
  made.work_ = try_to_run(group, std::move(list));
  if (made.work_) return made;

  std::memset(made.received_.mutable_bytes(), 0, made.received_.nbytes());
  std::memcpy(made.received_.mutable_bytes() + static_cast<std::size_t>(group.rank()) * give.nbytes(), give.bytes(),
              give.nbytes());
  Collective sum;
  sum.type = OpType::allreduce;
  sum.outputs.push_back(made.received_);
  sum.timeout = timeout;
  made.sent_bytes_ *= 2;
  made.work_ = group.run(std::move(sum));
  return made;
}

BlockExchange BlockExchange::scatter(ProcessGroup& group, const Tensor& give, std::optional<Milliseconds> timeout) {
  BlockExchange made;
  made.ranks_ = static_cast<std::size_t>(group.size());
  made.block_bytes_ = made.stride_ = give.nbytes() / made.ranks_;
  made.sent_bytes_ = made.block_bytes_ * (made.ranks_ - 1);
  made.received_ = Tensor::empty({give.numel()}, DType::u8);
  Collective collective;
  collective.type = OpType::alltoall_base;
  collective.inputs.push_back(give);
  collective.outputs.push_back(made.received_);
  collective.timeout = timeout;
  made.work_ = try_to_run(group, std::move(collective));
  if (made.work_) return made;

  BlockExchange all = gather(group, give, timeout);
  all.first_ = static_cast<std::size_t>(group.rank()) * made.block_bytes_;
  all.block_bytes_ = made.block_bytes_;
  return all;
}

std::vector<const std::byte*> BlockExchange::blocks() const {
  std::vector<const std::byte*> all;
  all.reserve(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r) all.push_back(received_.bytes() + first_ + r * stride_);
  return all;
}

}  // namespace hookline::group
