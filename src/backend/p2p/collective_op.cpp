// Header exchange and agreement. Small blocks travel with the headers.
#include "backend/p2p/collective_op.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/p2p/p2p_context.hpp"
#include "kernel/reduce.hpp"

namespace hookline::p2p {
namespace {

constexpr std::size_t kAlignment = backend::kCacheLineBytes;
constexpr std::size_t kMaxInlineBytes = 32 * 1024;
constexpr Milliseconds kHeaderPollTime{2};  // for a header that has already arrived

constexpr std::size_t kSignatureBytes = kAlignment;  // aligns the data behind the signature to a cache line
static_assert(sizeof(backend::OpSignature) <= kSignatureBytes);

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// All-to-all traffic grows with the ranks, so the limit per rank shrinks. Between two ranks an inline reduction sends
// no more bytes than direct_reduce(), in one message instead of three.
std::size_t inline_limit(int size) {
  const std::size_t peers = static_cast<std::size_t>(std::max(size - 1, 1));
  return std::max<std::size_t>(kMaxInlineBytes / peers, 1024) / kAlignment * kAlignment;
}

}  // namespace

CollectiveOp::CollectiveOp(std::shared_ptr<P2PContext> context, Milliseconds timeout, int lane, Operation&& arguments)
    : TransportOp(std::move(context), timeout, std::move(arguments)),
      lane_(lane),
      rank_(this->context().rank()),
      size_(this->context().size()),
      layout_(backend::make_block_layout(operation(), rank_, size_)),
      signature_(backend::signature_of(operation(), layout_)),
      inline_limit_(inline_limit(size_)),
      inlines_payload_((is_source(rank_) ? layout_.send_blocks.bytes() : 0) <= inline_limit_) {
  header_stride_ = round_up(kSignatureBytes + splits_bytes() + inline_limit_);
}

std::size_t CollectiveOp::splits_bytes() const {
  // Reserved by all ranks for every operation: a mismatching peer may call an alltoall.
  return round_up(2 * sizeof(std::uint64_t) * static_cast<std::size_t>(size_));
}

// Posts receives before sends, so that the headers of peers never wait for a buffer.
void CollectiveOp::post_headers(std::uint64_t sequence) {
  sequence_ = sequence;
  headers_ = Tensor::empty({size_, static_cast<std::int64_t>(header_stride_)}, DType::u8);
  std::byte* const headers = headers_.mutable_bytes();
  std::byte* const own_header = headers + static_cast<std::size_t>(rank_) * header_stride_;
  std::memset(own_header, 0, kSignatureBytes);
  std::memcpy(own_header, &signature_, sizeof signature_);
  std::size_t offset = kSignatureBytes;
  if (layout_.pattern == Pattern::alltoall) {
    for (const auto* blocks : {&layout_.send_blocks, &layout_.recv_blocks}) {
      for (std::size_t i = 0; i < blocks->size(); ++i) {
        const std::uint64_t bytes = (*blocks)[i].bytes();
        std::memcpy(own_header + offset, &bytes, sizeof bytes);
        offset += sizeof bytes;
      }
    }
    offset = kSignatureBytes + splits_bytes();
  }
  if (inlines_payload_ && is_source(rank_)) {
    pack_inputs(layout_);
    layout_.send_blocks.read(own_header + offset);
    offset += layout_.send_blocks.bytes();
  }
  receives_.resize(static_cast<std::size_t>(size_));
  sends_.resize(static_cast<std::size_t>(size_));
  const MessageTag tag{2 + 2 * lane_, sequence};
  int peer = rank_;
  try {
    for (int i = 1; i < size_; ++i) {
      peer = (rank_ + i) % size_;
      const auto r = static_cast<std::size_t>(peer);
      std::memset(headers + r * header_stride_, 0, kSignatureBytes);
      receives_[r] = context().transport().receive(peer, tag, headers + r * header_stride_, header_stride_);
    }
    for (int i = 1; i < size_; ++i) {
      peer = (rank_ + i) % size_;
      sends_[static_cast<std::size_t>(peer)] = context().transport().send(peer, tag, own_header, offset);
    }
  } catch (const PeerLost&) {
    set_peer(peer);
    post_error_ = std::current_exception();
  }
}

bool CollectiveOp::step() {
  if (!std::exchange(started_, true)) coroutine_ = run();
  return coroutine_.step();
}

StepCoroutine CollectiveOp::run() {
  if (post_error_) std::rethrow_exception(post_error_);
  for (int r = 0; r < size_; ++r) {
    while (!test_request(receives_[static_cast<std::size_t>(r)], r)) co_await backend::kYield;
  }
  headers_received_ = true;
  for (int r = 0; r < size_; ++r) {
    while (!test_request(sends_[static_cast<std::size_t>(r)], r)) co_await backend::kYield;
  }
  sends_.clear();
  receives_.clear();
  headers_sent_ = true;
  compare_headers();
  if (layout_.pattern == Pattern::none) co_return;
  pack_inputs(layout_);  // inline payloads are already in the headers
  if (all_inlined()) {
    consume_inline_payload();
  } else {
    StepCoroutine transfer;
    switch (layout_.pattern) {
      case Pattern::allreduce:
      case Pattern::reduce:
      case Pattern::reduce_scatter: transfer = direct_reduce(); break;
      case Pattern::broadcast: transfer = size_ > 2 ? scatter_allgather_broadcast() : pairwise_exchange(); break;
      default: transfer = pairwise_exchange();
    }
    while (!transfer.step()) co_await backend::kYield;
    unpack_blocks();
  }
  unpack_outputs(layout_);
}

const std::byte* CollectiveOp::header(int rank) const {
  return headers_.bytes() + static_cast<std::size_t>(rank) * header_stride_;
}

const std::byte* CollectiveOp::payload(int rank) const {
  const std::byte* const payload_begin = header(rank) + kSignatureBytes;
  return layout_.pattern == Pattern::alltoall ? payload_begin + splits_bytes() : payload_begin;
}

void CollectiveOp::compare_headers() {
  std::vector<backend::OpSignature> signatures(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r)
    std::memcpy(&signatures[static_cast<std::size_t>(r)], header(r), sizeof(backend::OpSignature));
  const std::string mismatch = backend::describe_mismatch(signatures.data(), size_);
  if (!mismatch.empty()) {
    throw Mismatch(
        fmt::format("the ranks called different operations (number {} of lane {}): {}", sequence_, lane_, mismatch),
        backend::differing_ranks(signatures.data(), size_));
  }
  if (layout_.pattern == Pattern::alltoall) compare_splits();
}

void CollectiveOp::compare_splits() {
  std::vector<const std::byte*> split_tables;
  split_tables.reserve(static_cast<std::size_t>(size_));
  for (int r = 0; r < size_; ++r) split_tables.push_back(header(r) + kSignatureBytes);
  std::vector<int> ranks;
  const std::string mismatch = backend::read_splits(split_tables, splits_, ranks);
  if (!mismatch.empty()) throw Mismatch(describe() + ": " + mismatch, ranks);
}

std::size_t CollectiveOp::block_offset(int source, int target) const {
  if (!backend::is_scattered(layout_.pattern)) return 0;
  const auto t = static_cast<std::size_t>(target);
  if (layout_.pattern != Pattern::alltoall) return t * layout_.block_bytes;
  std::size_t offset = 0;
  const std::size_t row = static_cast<std::size_t>(source) * static_cast<std::size_t>(size_);
  for (std::size_t i = 0; i < t; ++i) offset += splits_[row + i];
  return offset;
}

std::size_t CollectiveOp::source_bytes(int source) const {
  return backend::is_scattered(layout_.pattern) ? block_offset(source, size_) : layout_.block_bytes;
}

bool CollectiveOp::all_inlined() const {
  for (int s = 0; s < size_; ++s) {
    if (is_source(s) && source_bytes(s) > inline_limit_) return false;
  }
  return true;
}

// Reads the inline payloads of the headers.
void CollectiveOp::consume_inline_payload() {
  const Pattern pattern = layout_.pattern;
  if (backend::reduces(pattern)) {
    if (!receives_result()) return;
    layout_.recv_blocks[0].for_each(
        0, layout_.block_bytes, [&](std::byte* out, std::size_t bytes, std::size_t position) {
          std::vector<const std::byte*> sources;
          sources.reserve(static_cast<std::size_t>(size_));
          for (int s = 0; s < size_; ++s) sources.push_back(payload(s) + block_offset(s, rank_) + position);
          kernel::reduce(operation().op, layout_.dtype, sources, {&out, 1}, bytes / size_of(layout_.dtype));
        });
    return;
  }
  for (int s = 0; s < size_; ++s) {
    if (!backend::sends_to(pattern, s, rank_, operation().root)) continue;
    const backend::SegmentList& to = layout_.recv_blocks.for_rank(s);
    to.write(0, to.bytes(), payload(s) + block_offset(s, rank_));
  }
}

void CollectiveOp::release_requests() noexcept {
  result_sends_.clear();
  result_receives_.clear();
  sends_.clear();
  receives_.clear();
}

// If the group has failed, the headers stay posted until the goodbyes have been sent: a transport that multiplexes a
// connection never gets past a message without a buffer. Headers have their own memory, so they access no tensor.
void CollectiveOp::finish(std::exception_ptr error) {
  if (error && !headers_sent_ && context().unusable()) {
    struct AbandonedHeaders {
      Tensor memory;
      std::vector<std::unique_ptr<Request>> sends;
      std::vector<std::unique_ptr<Request>> receives;
    };
    context().control_sender().retain_until_close(std::make_shared<AbandonedHeaders>(
        AbandonedHeaders{std::move(headers_), std::move(sends_), std::move(receives_)}));
  }
  release_requests();
  complete(std::move(error));
}

// Polls for kHeaderPollTime: a header may arrive shortly after a goodbye that its sender sent later.
bool CollectiveOp::is_missing(int rank) {
  if (headers_received_ || rank == rank_) return false;
  const auto& request = receives_[static_cast<std::size_t>(rank)];
  if (!request) return true;
  std::exception_ptr ignored;
  const Clock::time_point deadline = deadline_after(kHeaderPollTime);
  try {
    return context().watchdog().wait_for(
               context().transport(), *request, rank, [&] { return deadline; }, ignored, true) !=
           Watchdog::Outcome::completed;
  } catch (...) {  // interrupted
    return true;
  }
}

std::exception_ptr CollectiveOp::timeout_error() {
  std::vector<int> missing;
  for (int r = 0; r < size_; ++r) {
    if (is_missing(r)) missing.push_back(r);
  }
  if (missing.empty()) missing.push_back(awaited_peer());
  return context().timeout_error(*this, missing);
}

std::string CollectiveOp::describe() const {
  return fmt::format("{} (number {})", backend::describe(signature_), sequence_);
}

void CollectiveOp::drive() {
  context().lane(lane_).drive_until([&] { return done(); }, [&] { return deadline(); });
}

void CollectiveOp::expedite() { context().lane(lane_).wake(); }

}  // namespace hookline::p2p
