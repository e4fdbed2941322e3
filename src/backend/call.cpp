// Builds, compares and describes the signatures of calls.
#include "backend/call.hpp"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "backend/operation_kinds.hpp"
#include "backend/parts.hpp"
#include "core/hash.hpp"
#include "core/minority.hpp"
#include "core/note.hpp"

namespace hookline::backend {

Call call_of(const Collective& collective, const Parts& parts) {
  Call call;
  call.type = static_cast<std::uint8_t>(collective.type);
  call.note = collective.note;
  if (parts.motion == Motion::none) return call;
  call.dtype = static_cast<std::uint8_t>(parts.dtype);
  if (reduces(parts.motion)) {
    call.reduce = static_cast<std::uint8_t>(collective.op.kind());
    call.factor = collective.op.factor();
  }
  call.root = collective.root;
  if (parts.motion != Motion::alltoall) {
    call.count = parts.block_bytes / size_of(parts.dtype);
    // The hash covers the side that every rank has: in gather and scatter, only the root has a list.
    const bool many_out = parts.motion == Motion::scatter || parts.motion == Motion::reduce_scatter;
    call.layout = core::kHashOfNothing;
    for (const Tensor& t : many_out ? collective.outputs : sources(collective)) {
      call.layout = core::hash_on(call.layout, static_cast<std::uint64_t>(t.numel()));
    }
  }
  return call;
}

std::string describe(const Call& call) {
  const auto type = static_cast<OpType>(call.type);
  std::string text(call.type < kOpTypes ? name(type) : "an unknown operation");
  const Motion motion = call.type < kOpTypes ? motion_of(type) : Motion::none;
  if (motion == Motion::none) return text;
  const std::string_view dtype =
      call.dtype <= static_cast<std::uint8_t>(DType::boolean) ? name(static_cast<DType>(call.dtype)) : "?";
  text += motion == Motion::alltoall ? fmt::format(" of {}", dtype) : fmt::format(" of {} {}", call.count, dtype);
  if (reduces(motion)) {
    const bool known = call.reduce <= static_cast<std::uint8_t>(ReduceOp::Kind::premul_sum);
    text += fmt::format(", {}", known ? name(ReduceOp(static_cast<ReduceOp::Kind>(call.reduce))) : "?");
    if (call.reduce == static_cast<std::uint8_t>(ReduceOp::Kind::premul_sum)) text += fmt::format("({})", call.factor);
  }
  if (is_rooted(type)) text += fmt::format(", root {}", call.root);
  if (call.note != 0) text += fmt::format(" ({})", core::describe_note(call.note));
  return text;
}

namespace {

bool same(const Call& a, const Call& b) {
  return a.type == b.type && a.dtype == b.dtype && a.reduce == b.reduce && a.root == b.root && a.count == b.count &&
         a.layout == b.layout && a.note == b.note &&
         std::bit_cast<std::uint64_t>(a.factor) == std::bit_cast<std::uint64_t>(b.factor);  // NaN equals itself
}

}  // namespace

std::vector<int> differing_ranks(const Call* calls, int size) {
  return core::minority(static_cast<std::size_t>(size),
                        [&](std::size_t a, std::size_t b) { return same(calls[a], calls[b]); });
}

std::string difference(const Call* calls, int size) {
  bool all_same = true;
  for (int r = 1; r < size; ++r) all_same = all_same && same(calls[0], calls[r]);
  if (all_same) return "";
  std::string text;
  bool same_words = true;
  for (int r = 0; r < size; ++r) {
    text += fmt::format("{}rank {}: {}", r ? "; " : "", r, describe(calls[r]));
    same_words = same_words && describe(calls[r]) == describe(calls[0]);
  }
  return same_words ? text + "; the sizes of the tensors in the list differ" : text;
}

std::string read_splits(const std::vector<const std::byte*>& posted, std::vector<std::uint64_t>& splits,
                        std::vector<int>& differing) {
  const std::size_t ranks = posted.size();
  const std::size_t bytes = ranks * sizeof(std::uint64_t);
  splits.resize(ranks * ranks);
  std::vector<std::uint64_t> taken(ranks * ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::memcpy(splits.data() + r * ranks, posted[r], bytes);
    std::memcpy(taken.data() + r * ranks, posted[r] + bytes, bytes);
  }
  for (std::size_t from = 0; from < ranks; ++from) {
    std::ptrdiff_t sum = 0;
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::uint64_t given = splits[from * ranks + to];
      const std::uint64_t expected = taken[to * ranks + from];
      if (given != expected) {
        differing = {static_cast<int>(from), static_cast<int>(to)};
        return fmt::format("rank {} sends {} bytes to rank {}, which expects {} bytes", from, given, to, expected);
      }
      if (__builtin_add_overflow(sum, given, &sum)) {
        differing = {static_cast<int>(from)};
        return fmt::format("rank {} passed input splits whose sum overflows", from);
      }
    }
  }
  return "";
}

}  // namespace hookline::backend
