// Builds, compares and describes the signatures of calls.
#include "backend/op_signature.hpp"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "backend/block_layout.hpp"
#include "backend/op_traits.hpp"
#include "core/hash.hpp"
#include "core/minority.hpp"
#include "core/op_tag.hpp"

namespace hookline::backend {

OpSignature signature_of(const Operation& operation, const BlockLayout& layout) {
  OpSignature signature;
  signature.type = static_cast<std::uint8_t>(operation.type);
  signature.op_tag = operation.op_tag;
  if (layout.pattern == Pattern::none) return signature;
  signature.dtype = static_cast<std::uint8_t>(layout.dtype);
  if (reduces(layout.pattern)) {
    signature.reduce_op = static_cast<std::uint8_t>(operation.op.kind());
    signature.factor = operation.op.factor();
  }
  signature.root = operation.root;
  if (layout.pattern != Pattern::alltoall) {
    signature.count = layout.block_bytes / size_of(layout.dtype);
    // Hashes the inputs or the outputs, whichever every rank passes: in gather and scatter, only the root has a list.
    const bool output_list = layout.pattern == Pattern::scatter || layout.pattern == Pattern::reduce_scatter;
    signature.layout_hash = core::kFnvOffsetBasis;
    for (const Tensor& t : output_list ? operation.outputs : source_tensors(operation)) {
      signature.layout_hash = core::hash_combine(signature.layout_hash, static_cast<std::uint64_t>(t.numel()));
    }
  }
  return signature;
}

std::string describe(const OpSignature& signature) {
  const auto type = static_cast<OpType>(signature.type);
  std::string text(signature.type < kNumOpTypes ? name(type) : "an unknown operation");
  const Pattern pattern = signature.type < kNumOpTypes ? pattern_of(type) : Pattern::none;
  if (pattern == Pattern::none) return text;
  const std::string_view dtype =
      signature.dtype <= static_cast<std::uint8_t>(DType::boolean) ? name(static_cast<DType>(signature.dtype)) : "?";
  text +=
      pattern == Pattern::alltoall ? fmt::format(" of {}", dtype) : fmt::format(" of {} {}", signature.count, dtype);
  if (reduces(pattern)) {
    const bool known = signature.reduce_op <= static_cast<std::uint8_t>(ReduceOp::Kind::premul_sum);
    text += fmt::format(", {}", known ? name(ReduceOp(static_cast<ReduceOp::Kind>(signature.reduce_op))) : "?");
    if (signature.reduce_op == static_cast<std::uint8_t>(ReduceOp::Kind::premul_sum))
      text += fmt::format("({})", signature.factor);
  }
  if (is_rooted(type)) text += fmt::format(", root {}", signature.root);
  if (signature.op_tag != 0) text += fmt::format(" ({})", core::describe_op_tag(signature.op_tag));
  return text;
}

namespace {

bool is_same(const OpSignature& a, const OpSignature& b) {
  return a.type == b.type && a.dtype == b.dtype && a.reduce_op == b.reduce_op && a.root == b.root &&
         a.count == b.count && a.layout_hash == b.layout_hash && a.op_tag == b.op_tag &&
         std::bit_cast<std::uint64_t>(a.factor) == std::bit_cast<std::uint64_t>(b.factor);  // NaN equals itself
}

}  // namespace

std::vector<int> differing_ranks(const OpSignature* signatures, int size) {
  return core::minority(static_cast<std::size_t>(size),
                        [&](std::size_t a, std::size_t b) { return is_same(signatures[a], signatures[b]); });
}

std::string describe_mismatch(const OpSignature* signatures, int size) {
  bool all_same = true;
  for (int r = 1; r < size; ++r) all_same = all_same && is_same(signatures[0], signatures[r]);
  if (all_same) return "";
  std::string text;
  bool same_text = true;
  for (int r = 0; r < size; ++r) {
    text += fmt::format("{}rank {}: {}", r ? "; " : "", r, describe(signatures[r]));
    same_text = same_text && describe(signatures[r]) == describe(signatures[0]);
  }
  return same_text ? text + "; the sizes of the tensors in the list differ" : text;
}

std::string read_splits(const std::vector<const std::byte*>& posted, std::vector<std::uint64_t>& splits,
                        std::vector<int>& differing) {
  const std::size_t ranks = posted.size();
  const std::size_t bytes = ranks * sizeof(std::uint64_t);
  splits.resize(ranks * ranks);
  std::vector<std::uint64_t> expected_splits(ranks * ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::memcpy(splits.data() + r * ranks, posted[r], bytes);
    std::memcpy(expected_splits.data() + r * ranks, posted[r] + bytes, bytes);
  }
  for (std::size_t from = 0; from < ranks; ++from) {
    std::ptrdiff_t sum = 0;
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::uint64_t sent = splits[from * ranks + to];
      const std::uint64_t expected = expected_splits[to * ranks + from];
      if (sent != expected) {
        differing = {static_cast<int>(from), static_cast<int>(to)};
        return fmt::format("rank {} sends {} bytes to rank {}, which expects {} bytes", from, sent, to, expected);
      }
      if (__builtin_add_overflow(sum, sent, &sum)) {
        differing = {static_cast<int>(from)};
        return fmt::format("rank {} passed input splits whose sum overflows", from);
      }
    }
  }
  return "";
}

}  // namespace hookline::backend
