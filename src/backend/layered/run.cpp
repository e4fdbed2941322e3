// The agreement of all ranks, and operations that need no more than that.
#include "backend/layered/run.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/layered/divide.hpp"
#include "kernel/copy.hpp"
#include "kernel/reduce.hpp"

namespace hookline::layered {
namespace {

using embedded::Call;

// What a rank tells all others: its call, and the payload where that is small. All slots together stay small too.
struct Head {
  Call call;
  std::uint64_t between = 0;  ///< whether the ranks do something of their own between the hosts
};
static_assert(sizeof(Head) == 64);
constexpr std::size_t kMostPayload = 1024;
constexpr std::size_t kMostSlots = 64 * 1024;

std::size_t payload_for(std::size_t ranks) { return std::min(kMostPayload, kMostSlots / ranks / 64 * 64); }

}  // namespace

Run::Run(const Levels& levels, const Collective& collective, int lane, std::uint64_t number, Clock::time_point deadline,
         Scratch& scratch)
    : levels_(levels),
      topology_(levels.topology),
      collective_(collective),
      lane_(lane),
      number_(number),
      deadline_(deadline),
      scratch_(scratch),
      parts_(embedded::cut(collective, levels.rank, levels.size)),
      slot_payload_(payload_for(static_cast<std::size_t>(levels.size))) {}

void Run::run() {
  // It names those who did not come, which the engine can do only where it is asked first.
  if (collective_.type == OpType::monitored_barrier) return through_engine();
  agree();
  if (parts_.motion == Motion::none) return;
  if (fits_slot()) {
    finish_from_slots();
  } else if (parts_.motion == Motion::allreduce || parts_.motion == Motion::reduce) {
    reduce();
  } else if (parts_.motion == Motion::broadcast) {
    broadcast();
  } else if (parts_.motion == Motion::allgather && topology_.even()) {
    allgather();
  } else if (parts_.motion == Motion::reduce_scatter && topology_.even()) {
    reduce_scatter();
  } else {
    return through_engine();
  }
  for (const auto& [original, copy] : parts_.copied_back) original.copy_from(copy);
}

bool Run::fits_slot() const {
  if (parts_.motion == Motion::alltoall || collective_.between) return false;
  const std::size_t blocks =
      embedded::has_block_per_rank(parts_.motion) ? static_cast<std::size_t>(levels_.size) : std::size_t{1};
  return parts_.block_bytes * blocks <= slot_payload_;
}

// The others' words are compared with this rank's, and nothing of them is used as a size.
void Run::agree() {
  const auto ranks = static_cast<std::size_t>(levels_.size);
  const std::size_t slot = sizeof(Head) + slot_payload_;
  slots_ = scratch_.slots((ranks + 1) * slot);
  const Tensor own =
      slots_.slice(0, static_cast<std::int64_t>(ranks * slot), static_cast<std::int64_t>((ranks + 1) * slot));
  const Head head{.call = embedded::call_of(collective_, parts_), .between = collective_.between ? 1U : 0U};
  std::memcpy(own.mutable_bytes(), &head, sizeof head);
  const bool gives =
      (parts_.motion != Motion::broadcast && parts_.motion != Motion::scatter) || levels_.rank == collective_.root;
  if (gives && parts_.motion != Motion::none && fits_slot()) {
    std::byte* to = own.mutable_bytes() + sizeof head;
    for (std::size_t i = 0; i < parts_.give.size(); ++i) {
      parts_.give[i].for_each(0, parts_.give[i].bytes(), [&](const std::byte* data, std::size_t bytes, std::size_t) {
        std::memcpy(to, data, bytes);
        to += bytes;
      });
    }
  }
  const Tensor all = slots_.slice(0, 0, static_cast<std::int64_t>(ranks * slot));
  wait_for(start(*levels_.flat, OpType::allgather_into_tensor, {own}, {all}), levels_.all);

  std::vector<Call> calls(ranks);
  bool all_alike = true;
  for (std::size_t r = 0; r < ranks; ++r) {
    Head said;
    std::memcpy(&said, all.bytes() + r * slot, sizeof said);
    calls[r] = said.call;
    all_alike = all_alike && said.between == head.between;
  }
  std::string differing = embedded::difference(calls.data(), levels_.size);
  if (differing.empty() && !all_alike) differing = "some ranks encode what goes between the hosts, some do not";
  if (!differing.empty()) {
    throw Mismatch(
        fmt::format("the ranks did not call the same operation (number {} of lane {}): {}", number_, lane_, differing));
  }
}

const std::byte* Run::payload(std::size_t rank) const {
  return slots_.bytes() + rank * (sizeof(Head) + slot_payload_) + sizeof(Head);
}

void Run::finish_from_slots() {
  const auto ranks = static_cast<std::size_t>(levels_.size);
  const auto me = static_cast<std::size_t>(levels_.rank);
  const bool scatters = parts_.motion == Motion::reduce_scatter;
  if (scatters || parts_.motion == Motion::allreduce || parts_.motion == Motion::reduce) {
    if (parts_.motion == Motion::reduce && levels_.rank != collective_.root) return;
    std::vector<const std::byte*> sources;
    sources.reserve(ranks);
    for (std::size_t r = 0; r < ranks; ++r) sources.push_back(payload(r) + (scatters ? me * parts_.block_bytes : 0));
    // This rank's slot behind the others' has done its duty.
    std::byte* const result = const_cast<std::byte*>(payload(ranks));
    kernel::reduce(collective_.op, parts_.dtype, sources, {&result, 1}, parts_.block_bytes / size_of(parts_.dtype));
    parts_.take[0].for_each(0, parts_.block_bytes,
                            [&](std::byte* out, std::size_t n, std::size_t at) { std::memcpy(out, result + at, n); });
    return;
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!embedded::gives(parts_.motion, static_cast<int>(r), levels_.rank, collective_.root)) continue;
    const bool one = parts_.motion == Motion::broadcast || parts_.motion == Motion::scatter;
    const std::byte* const from = payload(r) + (parts_.motion == Motion::scatter ? me * parts_.block_bytes : 0);
    parts_.take[one ? 0 : r].for_each(
        0, parts_.block_bytes, [&](std::byte* out, std::size_t n, std::size_t at) { std::memcpy(out, from + at, n); });
  }
}

void Run::through_engine() {
  Collective same = collective_;
  wait_for(levels_.flat->start(std::move(same), lane_, time_left()), levels_.all);
}

WorkPtr Run::start(Backend& part, OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op,
                   int root) const {
  Collective c;
  c.type = type;
  c.inputs = std::move(inputs);
  c.outputs = std::move(outputs);
  c.op = op;
  c.root = root;
  c.note = collective_.note;
  return part.start(std::move(c), lane_, time_left());
}

void Run::wait_for(const WorkPtr& work, const std::vector<int>& ranks) const {
  try {
    work->wait();
  } catch (...) {
    std::rethrow_exception(in_whole_group(std::current_exception(), ranks));
  }
}

void Run::wait_between(const WorkPtr& work) const { wait_for(work, topology_.owners(topology_.place)); }

void Run::inside(OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, ReduceOp op, int root) const {
  wait_for(start(*levels_.inner, type, std::move(inputs), std::move(outputs), op, root), topology_.here());
}

// A sum of float16 that is divided at the end must not overflow on the way: its addends are made smaller first, by a
// power of two.
double Run::halvings() const {
  const bool small = is_avg() && parts_.dtype == DType::f16;
  return small ? static_cast<double>(std::bit_ceil(static_cast<unsigned>(levels_.size))) : 1.0;
}

ReduceOp Run::first_op() const {
  if (!is_avg()) return collective_.op;
  return halvings() > 1 ? ReduceOp::premul_sum(1.0 / halvings()) : ReduceOp::sum;
}

ReduceOp Run::second_op() const {
  const bool adds = is_avg() || collective_.op.kind() == ReduceOp::Kind::premul_sum;
  return adds ? ReduceOp::sum : collective_.op;
}

void Run::finish_mean(const Tensor& values) const {
  if (is_avg()) divide(values, halvings(), levels_.size);
}

}  // namespace hookline::layered
