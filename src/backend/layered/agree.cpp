// Header exchange and agreement; small payloads are piggybacked.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "backend/layered/run.hpp"
#include "core/hash.hpp"
#include "core/minority.hpp"
#include "core/note.hpp"
#include "kernel/reduce.hpp"

namespace hookline::layered {
namespace {

using backend::Call;

// What a rank sends to all others; a small payload follows it in the slot.
struct Head {
  Call call;
  std::uint64_t between = 0;  ///< hash of the InterHostReducer's name; 0 without one
};
static_assert(sizeof(Head) == 64);
constexpr std::size_t kMostPayload = 1024;
constexpr std::size_t kMostSlots = 64 * 1024;

// The limit of a piggybacked sum: for larger ones the saved message does not matter.
constexpr std::size_t kMostRiding = 24 * 1024;
// Makes the length of a piggybacked sum differ from that of a slot for every payload.
constexpr std::size_t kOdd = 8;

constexpr OpType kTell = OpType::allgather_into_tensor;

Head head_at(const std::byte* from) {
  Head head;
  std::memcpy(&head, from, sizeof head);
  return head;
}

struct Difference {
  std::string text;  ///< empty if all agree
  std::vector<int> ranks;
};

Difference difference(const std::vector<Head>& heads) {
  std::vector<Call> calls;
  calls.reserve(heads.size());
  for (const Head& head : heads) calls.push_back(head.call);
  std::string differing = backend::difference(calls.data(), static_cast<int>(calls.size()));
  if (!differing.empty()) return {differing, backend::differing_ranks(calls.data(), static_cast<int>(calls.size()))};
  std::vector<int> others =
      core::minority(heads.size(), [&](std::size_t a, std::size_t b) { return heads[a].between == heads[b].between; });
  if (others.empty()) return {};
  const std::string text =
      fmt::format("rank {} and other ranks use different codecs between hosts; pass the same codec and op on all ranks",
                  fmt::join(others, ", "));
  return {text, std::move(others)};
}

std::uint64_t note_of(const std::byte* head) {
  return core::content_note(core::hash_of({reinterpret_cast<const char*>(head), sizeof(Head)}));
}

std::size_t round_up(std::size_t bytes) { return (bytes + sizeof(Head) - 1) / sizeof(Head) * sizeof(Head); }

}  // namespace

std::size_t Run::slot_bytes() const {
  const std::size_t share = kMostSlots / static_cast<std::size_t>(levels_.size) / sizeof(Head) * sizeof(Head);
  return sizeof(Head) + std::min(kMostPayload, share);
}

bool Run::fits_slot() const {
  if (parts_.motion == Motion::alltoall || collective_.between) return false;
  const std::size_t blocks =
      backend::has_block_per_rank(parts_.motion) ? static_cast<std::size_t>(levels_.size) : std::size_t{1};
  return parts_.block_bytes * blocks <= slot_bytes() - sizeof(Head);
}

// The number of elements of a slice; the last slice may have fewer.
std::size_t Run::riding_count() const {
  const std::size_t count = parts_.block_bytes / size_of(parts_.dtype);
  return (count + topology_.slices - 1) / topology_.slices;
}

std::size_t Run::riding_bytes() const { return sizeof(Head) + round_up(riding_count() * size_of(parts_.dtype)) + kOdd; }

bool Run::may_ride() const {
  if (parts_.motion != Motion::allreduce || collective_.between || fits_slot() || !topology_.even()) return false;
  return riding_bytes() * (topology_.hosts.size() - 1) <= kMostRiding;
}

Tensor Run::words(std::size_t begin, std::size_t bytes) const {
  return slots_.slice(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(begin + bytes));
}

// Sizes never come from the headers of peers.
void Run::agree() {
  const std::size_t of_all = static_cast<std::size_t>(levels_.size) * slot_bytes();
  slots_ = scratch_.slots(of_all + slot_bytes() + (may_ride() ? topology_.hosts.size() * riding_bytes() : 0));
  write_slot(slots_.mutable_bytes() + of_all);
  by_levels_ = topology_.even() && tell_by_levels();
  if (!by_levels_) {
    rode_ = false;
    tell(*levels_.flat, {.type = kTell, .inputs = {words(of_all, slot_bytes())}, .outputs = {words(0, of_all)}},
         levels_.all);
  }
  std::vector<Head> heads;
  heads.reserve(static_cast<std::size_t>(levels_.size));
  for (int r = 0; r < levels_.size; ++r) heads.push_back(head_at(word_of(r)));
  const Difference differing = difference(heads);
  if (differing.text.empty()) return;
  throw Mismatch(fmt::format("the ranks did not call the same operation (number {} of lane {}): {}", number_, lane_,
                             differing.text),
                 differing.ranks);
}

void Run::write_slot(std::byte* to) const {
  const Head head{.call = backend::call_of(collective_, parts_),
                  .between = collective_.between ? core::hash_of(collective_.between->name()) : 0};
  std::memcpy(to, &head, sizeof head);
  if (!backend::is_source(parts_.motion, levels_.rank, collective_.root) || parts_.motion == Motion::none ||
      !fits_slot())
    return;
  parts_.give.read(to + sizeof head);
}

// The ranks of a host exchange headers in shared memory; then the owners of each slice exchange the headers of their
// hosts. Two hosts of two ranks send 4 messages, where all-to-all sends 12. A piggybacked sum implies that the ranks of
// its host agree, so one header represents the host. Returns false on a mismatch inside a host or between hosts: no
// rank then knows all headers, but every rank knows of the mismatch, since each owns a slice.
bool Run::tell_by_levels() {
  const std::size_t of_host = topology_.slices * slot_bytes();
  const std::size_t of_all = topology_.hosts.size() * of_host;
  const Tensor slot = words(of_all, slot_bytes());
  Tensor own = words(topology_.host * of_host, of_host);
  Tensor all = words(0, of_all);
  rode_ = may_ride();
  if (rode_) {
    const std::size_t begin = of_all + slot_bytes();
    own = words(begin + topology_.host * riding_bytes(), riding_bytes());
    all = words(begin, topology_.hosts.size() * riding_bytes());
  }
  bool alike = true;
  const auto unless_they_differ = [&](const auto& f) {
    try {
      f();
    } catch (const Mismatch&) {
      alike = false;
    }
  };
  unless_they_differ([&] {
    if (rode_) gather_riding(slot, own);
    else tell(*levels_.inner, {.type = kTell, .inputs = {slot}, .outputs = {own}}, topology_.here());
  });
  // After a mismatch inside the host, call a barrier instead, so that the other hosts see a mismatch too.
  Collective between;
  if (alike) between = {.type = kTell, .inputs = {own}, .outputs = {all}};
  // A missing rank is named by the ranks of its host, which time out first.
  unless_they_differ([&] { tell(*levels_.slice, std::move(between), topology_.owners(topology_.place), kForNames); });
  return alike;
}

void Run::tell(Backend& part, Collective&& what, const std::vector<int>& ranks, Milliseconds longer) const {
  wait_for(part.start(std::move(what), lane_, time_left() + longer), ranks);
}

const std::byte* Run::word_of(int rank) const {
  if (!by_levels_) return slots_.bytes() + static_cast<std::size_t>(rank) * slot_bytes();
  const std::size_t host = topology_.host_of(rank);
  if (rode_) return riding_of(host);
  return slots_.bytes() + (host * topology_.slices + topology_.place_of(rank)) * slot_bytes();
}

const std::byte* Run::payload(int rank) const { return word_of(rank) + sizeof(Head); }

const std::byte* Run::riding_of(std::size_t host) const {
  return slots_.bytes() + (static_cast<std::size_t>(levels_.size) + 1) * slot_bytes() + host * riding_bytes();
}

// The op tag is a hash of the header, so the reduction itself detects a mismatch inside the host. The tensors are not
// written before all ranks agree. The padding of the last slice is never read.
void Run::gather_riding(const Tensor& slot, const Tensor& to) {
  const std::size_t count = riding_count();
  riding_ = scratch_.shared(*levels_.inner, count * topology_.slices, parts_.dtype);
  parts_.give[0].read(0, parts_.block_bytes, riding_.mutable_bytes());
  std::memcpy(to.mutable_bytes(), slot.bytes(), sizeof(Head));
  const Tensor sums = Tensor::wrap(to.mutable_bytes() + sizeof(Head), {static_cast<std::int64_t>(count)}, parts_.dtype);
  tell(*levels_.inner,
       {.type = OpType::reduce_scatter_tensor,
        .inputs = {riding_},
        .outputs = {sums},
        .op = first_op(),
        .note = note_of(slot.bytes())},
       topology_.here());
}

void Run::finish_riding() {
  const std::size_t count = riding_count();
  std::vector<const std::byte*> sources;
  sources.reserve(topology_.hosts.size());
  for (std::size_t h = 0; h < topology_.hosts.size(); ++h) {
    sources.push_back(riding_of(h) + sizeof(Head));
  }
  const Tensor slice = slice_of(riding_, topology_.place);
  std::byte* const result = slice.mutable_bytes();
  kernel::reduce(second_op(), parts_.dtype, sources, {&result, 1}, count);
  finish_mean(slice);
  inside(OpType::allgather_into_tensor, {slice}, {riding_});
  parts_.take[0].write(0, parts_.block_bytes, riding_.bytes());
}

void Run::finish_from_slots() {
  const auto me = static_cast<std::size_t>(levels_.rank);
  const bool scatters = parts_.motion == Motion::reduce_scatter;
  if (backend::reduces(parts_.motion)) {
    if (parts_.motion == Motion::reduce && levels_.rank != collective_.root) return;
    std::vector<const std::byte*> sources;
    sources.reserve(static_cast<std::size_t>(levels_.size));
    for (int r = 0; r < levels_.size; ++r) sources.push_back(payload(r) + (scatters ? me * parts_.block_bytes : 0));
    // Reuses this rank's own slot, which has been sent.
    std::byte* const result =
        slots_.mutable_bytes() + static_cast<std::size_t>(levels_.size) * slot_bytes() + sizeof(Head);
    kernel::reduce(collective_.op, parts_.dtype, sources, {&result, 1}, parts_.block_bytes / size_of(parts_.dtype));
    parts_.take[0].write(0, parts_.block_bytes, result);
    return;
  }
  for (int r = 0; r < levels_.size; ++r) {
    if (!backend::gives(parts_.motion, r, levels_.rank, collective_.root)) continue;
    const std::byte* const from = payload(r) + (parts_.motion == Motion::scatter ? me * parts_.block_bytes : 0);
    parts_.take.of(r).write(0, parts_.block_bytes, from);
  }
}

}  // namespace hookline::layered
