// BlockExchange: tries the operations in order of increasing traffic.
#include "group/block_exchange.hpp"

#include <cstring>

#include <hookline/core/error.hpp>

namespace hookline::group {
namespace {

/// Returns null if the group does not support the operation. All ranks of a group support the same operations.
template <class F>
WorkPtr where_supported(F start) {
  try {
    return start();
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
  made.work_ = where_supported([&] { return group.allgather_into_tensor(made.received_, give, {.timeout = timeout}); });
  if (made.work_) return made;

  std::vector<Tensor> blocks;
  blocks.reserve(made.ranks_);
  for (int r = 0; r < group.size(); ++r) {
    blocks.push_back(made.received_.slice(0, r * give.numel(), (r + 1) * give.numel()));
  }
  made.work_ = where_supported([&] { return group.allgather(blocks, give, {.timeout = timeout}); });
  if (made.work_) return made;

  std::memset(made.received_.mutable_bytes(), 0, made.received_.nbytes());
  blocks[static_cast<std::size_t>(group.rank())].copy_from(give);
  made.sent_bytes_ *= 2;
  made.work_ = group.allreduce(made.received_, {.timeout = timeout});
  return made;
}

BlockExchange BlockExchange::scatter(ProcessGroup& group, const Tensor& give, std::optional<Milliseconds> timeout) {
  BlockExchange made;
  made.ranks_ = static_cast<std::size_t>(group.size());
  made.block_bytes_ = made.stride_ = give.nbytes() / made.ranks_;
  made.sent_bytes_ = made.block_bytes_ * (made.ranks_ - 1);
  made.received_ = Tensor::empty({give.numel()}, DType::u8);
  made.work_ = where_supported([&] { return group.alltoall_base(made.received_, give, {}, {}, {.timeout = timeout}); });
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
