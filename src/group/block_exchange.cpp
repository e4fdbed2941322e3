// BlockExchange: tries the operations in order of increasing traffic.
#include "group/block_exchange.hpp"

#include <cstring>

#include <hookline/core/error.hpp>

namespace hookline::group {
namespace {

/// Returns null if the group does not support the operation. All ranks of a group support the same operations.
template <class F>
WorkPtr start_if_supported(F start) {
  try {
    return start();
  } catch (const Unsupported&) {
    return nullptr;
  }
}

}  // namespace

BlockExchange BlockExchange::allgather(ProcessGroup& group, const Tensor& send_buffer,
                                       std::optional<Milliseconds> timeout) {
  BlockExchange exchange;
  exchange.ranks_ = static_cast<std::size_t>(group.size());
  exchange.block_bytes_ = exchange.stride_ = send_buffer.nbytes();
  exchange.bytes_sent_ = send_buffer.nbytes() * (exchange.ranks_ - 1);
  exchange.recv_buffer_ = Tensor::empty({send_buffer.numel() * group.size()}, DType::u8);
  exchange.work_ = start_if_supported(
      [&] { return group.allgather_into_tensor(exchange.recv_buffer_, send_buffer, {.timeout = timeout}); });
  if (exchange.work_) return exchange;

  std::vector<Tensor> blocks;
  blocks.reserve(exchange.ranks_);
  for (int r = 0; r < group.size(); ++r) {
    blocks.push_back(exchange.recv_buffer_.slice(0, r * send_buffer.numel(), (r + 1) * send_buffer.numel()));
  }
  exchange.work_ = start_if_supported([&] { return group.allgather(blocks, send_buffer, {.timeout = timeout}); });
  if (exchange.work_) return exchange;

  std::memset(exchange.recv_buffer_.mutable_bytes(), 0, exchange.recv_buffer_.nbytes());
  blocks[static_cast<std::size_t>(group.rank())].copy_from(send_buffer);
  exchange.bytes_sent_ *= 2;
  exchange.work_ = group.allreduce(exchange.recv_buffer_, {.timeout = timeout});
  return exchange;
}

BlockExchange BlockExchange::alltoall(ProcessGroup& group, const Tensor& send_buffer,
                                      std::optional<Milliseconds> timeout) {
  BlockExchange exchange;
  exchange.ranks_ = static_cast<std::size_t>(group.size());
  exchange.block_bytes_ = exchange.stride_ = send_buffer.nbytes() / exchange.ranks_;
  exchange.bytes_sent_ = exchange.block_bytes_ * (exchange.ranks_ - 1);
  exchange.recv_buffer_ = Tensor::empty({send_buffer.numel()}, DType::u8);
  exchange.work_ = start_if_supported(
      [&] { return group.alltoall_base(exchange.recv_buffer_, send_buffer, {}, {}, {.timeout = timeout}); });
  if (exchange.work_) return exchange;

  BlockExchange all = allgather(group, send_buffer, timeout);
  all.offset_ = static_cast<std::size_t>(group.rank()) * exchange.block_bytes_;
  all.block_bytes_ = exchange.block_bytes_;
  return all;
}

std::vector<const std::byte*> BlockExchange::blocks() const {
  std::vector<const std::byte*> all;
  all.reserve(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r) all.push_back(recv_buffer_.bytes() + offset_ + r * stride_);
  return all;
}

}  // namespace hookline::group
