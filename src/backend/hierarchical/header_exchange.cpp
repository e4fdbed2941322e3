// Header exchange and agreement; small payloads are piggybacked.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/hierarchical/hierarchical_op.hpp"
#include "core/hash.hpp"
#include "core/minority.hpp"
#include "core/op_tag.hpp"
#include "kernel/reduce.hpp"

namespace hookline::hierarchical {
namespace {

using backend::OpSignature;

// The header that a rank sends to all others; a small payload follows it in the slot.
struct Header {
  OpSignature signature;
  std::uint64_t inter_host_hash = 0;  ///< hash of the InterHostReducer's name; 0 without one
};
static_assert(sizeof(Header) == 64);
constexpr std::size_t kMaxSlotPayload = 1024;
constexpr std::size_t kMaxSlotsBytes = 64 * 1024;

// Limits the piggybacked bytes that a rank sends. Larger sums would gain little from it.
constexpr std::size_t kMaxPiggybackBytes = 24 * 1024;
// Makes the message with a piggybacked sum differ in length from the slots of a host, for every payload. The inter-host
// backend then reports a mismatch if only some hosts piggyback.
constexpr std::size_t kPiggybackPadding = 8;

constexpr OpType kHeaderExchange = OpType::allgather_into_tensor;

Header header_at(const std::byte* from) {
  Header header;
  std::memcpy(&header, from, sizeof header);
  return header;
}

struct HeaderMismatch {
  std::string text;  ///< empty if all agree
  std::vector<int> ranks;
};

HeaderMismatch find_mismatch(const std::vector<Header>& headers) {
  std::vector<OpSignature> signatures;
  signatures.reserve(headers.size());
  for (const Header& header : headers) signatures.push_back(header.signature);
  std::string call_mismatch = backend::describe_mismatch(signatures.data(), static_cast<int>(signatures.size()));
  if (!call_mismatch.empty())
    return {call_mismatch, backend::differing_ranks(signatures.data(), static_cast<int>(signatures.size()))};
  std::vector<int> minority = core::minority(headers.size(), [&](std::size_t a, std::size_t b) {
    return headers[a].inter_host_hash == headers[b].inter_host_hash;
  });
  if (minority.empty()) return {};
  const std::string text =
      fmt::format("rank {} and other ranks use different codecs between hosts; pass the same codec and op on all ranks",
                  fmt::join(minority, ", "));
  return {text, std::move(minority)};
}

std::uint64_t header_tag(const std::byte* header) {
  return core::content_tag(core::hash_bytes({reinterpret_cast<const char*>(header), sizeof(Header)}));
}

std::size_t round_up(std::size_t bytes) { return (bytes + sizeof(Header) - 1) / sizeof(Header) * sizeof(Header); }

}  // namespace

std::size_t HierarchicalOp::slot_bytes() const {
  const std::size_t share =
      kMaxSlotsBytes / static_cast<std::size_t>(sub_backends_.size) / sizeof(Header) * sizeof(Header);
  return sizeof(Header) + std::min(kMaxSlotPayload, share);
}

bool HierarchicalOp::fits_slot() const {
  if (layout_.pattern == Pattern::alltoall || operation_.inter_host_reducer) return false;
  const std::size_t blocks =
      backend::is_scattered(layout_.pattern) ? static_cast<std::size_t>(sub_backends_.size) : std::size_t{1};
  return layout_.block_bytes * blocks <= slot_bytes() - sizeof(Header);
}

// Returns the number of elements of a slice, which is sent along with the headers. The last slice may have fewer.
std::size_t HierarchicalOp::piggyback_count() const {
  const std::size_t count = layout_.block_bytes / size_of(layout_.dtype);
  return (count + topology_.slices - 1) / topology_.slices;
}

std::size_t HierarchicalOp::piggyback_bytes() const {
  return sizeof(Header) + round_up(piggyback_count() * size_of(layout_.dtype)) + kPiggybackPadding;
}

bool HierarchicalOp::can_piggyback() const {
  if (layout_.pattern != Pattern::allreduce || operation_.inter_host_reducer || fits_slot() || !topology_.is_uniform())
    return false;
  return piggyback_bytes() * (topology_.hosts.size() - 1) <= kMaxPiggybackBytes;
}

Tensor HierarchicalOp::header_slice(std::size_t begin, std::size_t bytes) const {
  return slots_.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(begin + bytes));
}

// Computes all sizes from this rank's own call: the headers of peers may differ.
void HierarchicalOp::agree_on_headers() {
  const std::size_t all_bytes = static_cast<std::size_t>(sub_backends_.size) * slot_bytes();
  slots_ =
      scratch_.slots(all_bytes + slot_bytes() + (can_piggyback() ? topology_.hosts.size() * piggyback_bytes() : 0));
  write_slot(slots_.mutable_bytes() + all_bytes);
  exchanged_by_host_ = topology_.is_uniform() && exchange_headers_by_host();
  if (!exchanged_by_host_) {
    piggybacked_ = false;
    exchange_headers(*sub_backends_.global,
                     {.type = kHeaderExchange,
                      .inputs = {header_slice(all_bytes, slot_bytes())},
                      .outputs = {header_slice(0, all_bytes)}},
                     sub_backends_.all_ranks);
  }
  std::vector<Header> headers;
  headers.reserve(static_cast<std::size_t>(sub_backends_.size));
  for (int r = 0; r < sub_backends_.size; ++r) headers.push_back(header_at(header_of(r)));
  const HeaderMismatch mismatch = find_mismatch(headers);
  if (mismatch.text.empty()) return;
  throw Mismatch(
      fmt::format("the ranks called different operations (number {} of lane {}): {}", sequence_, lane_, mismatch.text),
      mismatch.ranks);
}

void HierarchicalOp::write_slot(std::byte* slot) const {
  const Header header{
      .signature = backend::signature_of(operation_, layout_),
      .inter_host_hash = operation_.inter_host_reducer ? core::hash_bytes(operation_.inter_host_reducer->name()) : 0};
  std::memcpy(slot, &header, sizeof header);
  if (!backend::is_source(layout_.pattern, sub_backends_.rank, operation_.root) || layout_.pattern == Pattern::none ||
      !fits_slot())
    return;
  layout_.send_blocks.read(slot + sizeof header);
}

// The ranks of a host exchange headers in shared memory; then the owners of each slice exchange the headers of their
// hosts. Two hosts of two ranks send 4 messages, where all-to-all sends 12. A piggybacked sum implies that the ranks of
// its host agree, so one header represents the host. Returns false on a mismatch inside a host or between hosts: no
// rank then knows all headers, but every rank detects the mismatch, because on uniform hosts each rank owns a slice.
bool HierarchicalOp::exchange_headers_by_host() {
  const std::size_t host_bytes = topology_.slices * slot_bytes();
  const std::size_t all_bytes = topology_.hosts.size() * host_bytes;
  const Tensor slot = header_slice(all_bytes, slot_bytes());
  Tensor own = header_slice(topology_.host * host_bytes, host_bytes);
  Tensor all = header_slice(0, all_bytes);
  piggybacked_ = can_piggyback();
  if (piggybacked_) {
    const std::size_t begin = all_bytes + slot_bytes();
    own = header_slice(begin + topology_.host * piggyback_bytes(), piggyback_bytes());
    all = header_slice(begin, topology_.hosts.size() * piggyback_bytes());
  }
  bool agreed = true;
  const auto catch_mismatch = [&](const auto& f) {
    try {
      f();
    } catch (const Mismatch&) {
      agreed = false;
    }
  };
  catch_mismatch([&] {
    if (piggybacked_) gather_piggyback(slot, own);
    else
      exchange_headers(*sub_backends_.intra_host, {.type = kHeaderExchange, .inputs = {slot}, .outputs = {own}},
                       topology_.local_ranks());
  });
  // After a mismatch inside the host, call a barrier instead, so that the other hosts see a mismatch too.
  Operation inter_host;
  if (agreed) inter_host = {.type = kHeaderExchange, .inputs = {own}, .outputs = {all}};
  // The grace lets the host of a missing rank time out first: its ranks name the missing one.
  catch_mismatch([&] {
    exchange_headers(*sub_backends_.inter_host, std::move(inter_host), topology_.owners(topology_.local_rank),
                     kBlameGrace);
  });
  return agreed;
}

void HierarchicalOp::exchange_headers(Backend& backend, Operation&& operation, const std::vector<int>& ranks,
                                      Milliseconds grace) const {
  wait_for(backend.start(std::move(operation), lane_, time_left() + grace), ranks);
}

const std::byte* HierarchicalOp::header_of(int rank) const {
  if (!exchanged_by_host_) return slots_.bytes() + static_cast<std::size_t>(rank) * slot_bytes();
  const std::size_t host = topology_.host_of(rank);
  if (piggybacked_) return piggyback_of(host);
  return slots_.bytes() + (host * topology_.slices + topology_.local_rank_of(rank)) * slot_bytes();
}

const std::byte* HierarchicalOp::payload(int rank) const { return header_of(rank) + sizeof(Header); }

const std::byte* HierarchicalOp::piggyback_of(std::size_t host) const {
  return slots_.bytes() + (static_cast<std::size_t>(sub_backends_.size) + 1) * slot_bytes() + host * piggyback_bytes();
}

// The op tag is a hash of the header, so the reduction itself detects a mismatch inside the host. The tensors are not
// written before all ranks agree. The padding of the last slice is never read.
void HierarchicalOp::gather_piggyback(const Tensor& slot, const Tensor& output) {
  const std::size_t count = piggyback_count();
  piggyback_ = scratch_.shared(*sub_backends_.intra_host, count * topology_.slices, layout_.dtype);
  layout_.send_blocks[0].read(0, layout_.block_bytes, piggyback_.mutable_bytes());
  std::memcpy(output.mutable_bytes(), slot.bytes(), sizeof(Header));
  const Tensor sums =
      Tensor::wrap(output.mutable_bytes() + sizeof(Header), {static_cast<std::int64_t>(count)}, layout_.dtype);
  exchange_headers(*sub_backends_.intra_host,
                   {.type = OpType::reduce_scatter_tensor,
                    .inputs = {piggyback_},
                    .outputs = {sums},
                    .op = intra_host_op(),
                    .op_tag = header_tag(slot.bytes())},
                   topology_.local_ranks());
}

void HierarchicalOp::finish_piggyback() {
  const std::size_t count = piggyback_count();
  std::vector<const std::byte*> sources;
  sources.reserve(topology_.hosts.size());
  for (std::size_t h = 0; h < topology_.hosts.size(); ++h) {
    sources.push_back(piggyback_of(h) + sizeof(Header));
  }
  const Tensor slice = slice_of(piggyback_, topology_.local_rank);
  std::byte* const result = slice.mutable_bytes();
  kernel::reduce(inter_host_op(), layout_.dtype, sources, {&result, 1}, count);
  divide_by_size(slice);
  run_intra_host(OpType::allgather_into_tensor, {slice}, {piggyback_});
  layout_.recv_blocks[0].write(0, layout_.block_bytes, piggyback_.bytes());
}

void HierarchicalOp::finish_from_slots() {
  const auto own_rank = static_cast<std::size_t>(sub_backends_.rank);
  const bool scatters = layout_.pattern == Pattern::reduce_scatter;
  if (backend::reduces(layout_.pattern)) {
    if (layout_.pattern == Pattern::reduce && sub_backends_.rank != operation_.root) return;
    std::vector<const std::byte*> sources;
    sources.reserve(static_cast<std::size_t>(sub_backends_.size));
    for (int r = 0; r < sub_backends_.size; ++r)
      sources.push_back(payload(r) + (scatters ? own_rank * layout_.block_bytes : 0));
    // Reuses this rank's own slot, which has been sent.
    std::byte* const result =
        slots_.mutable_bytes() + static_cast<std::size_t>(sub_backends_.size) * slot_bytes() + sizeof(Header);
    kernel::reduce(operation_.op, layout_.dtype, sources, {&result, 1}, layout_.block_bytes / size_of(layout_.dtype));
    layout_.recv_blocks[0].write(0, layout_.block_bytes, result);
    return;
  }
  for (int r = 0; r < sub_backends_.size; ++r) {
    if (!backend::sends_to(layout_.pattern, r, sub_backends_.rank, operation_.root)) continue;
    const std::byte* const block =
        payload(r) + (layout_.pattern == Pattern::scatter ? own_rank * layout_.block_bytes : 0);
    layout_.recv_blocks.for_rank(r).write(0, layout_.block_bytes, block);
  }
}

}  // namespace hookline::hierarchical
