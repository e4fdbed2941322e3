// Model check: compares hashes, and exchanges the full descriptions only if they differ.
#include "reducer/model_check.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

#include "core/hash.hpp"
#include "reducer/fallback_collectives.hpp"

namespace hookline::reducer {
namespace {

constexpr std::size_t kShown = 5;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Appends the differences between rank 0 and rank `rank`.
void add_differences(const std::vector<std::string>& first, const std::vector<std::string>& other, int rank,
                     std::vector<std::string>& found) {
  for (std::size_t i = 0; i < std::max(first.size(), other.size()) && found.size() < kShown; ++i) {
    const std::string a = i < first.size() ? first[i] : "nothing";
    const std::string b = i < other.size() ? other[i] : "nothing";
    if (a != b) found.push_back(fmt::format("rank 0 has {}, rank {} has {}", a, rank, b));
  }
}

}  // namespace

void check_same_on_all_ranks(ProcessGroup& group, const std::vector<std::string>& lines) {
  const std::string text = fmt::format("{}\n", fmt::join(lines, "\n"));
  const auto ranks = static_cast<std::size_t>(group.size());
  // The tensors own their memory: Ctrl-C ends the wait, not the operation that writes to them.
  const std::vector<std::int64_t> own = {static_cast<std::int64_t>(core::hash_bytes(text)),
                                         static_cast<std::int64_t>(text.size())};
  const Tensor gathered = Tensor::empty({2 * group.size()}, DType::i64);
  allgather_into_tensor(group, gathered, Tensor::borrow(own).clone())->wait();
  const auto* const all = gathered.data<const std::int64_t>();
  if (!std::equal(own.begin(), own.end(), all + 2 * group.rank())) {
    throw Mismatch(fmt::format(
        "model check on rank {} of {}: the group {} is not exact for int64, so models cannot be compared. Its "
        "allgather_into_tensor, or its allreduce if it has none, must be exact for int64.",
        group.rank(), group.size(), group.backend_name()));
  }
  bool same = true;
  std::int64_t longest = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    same = same && all[2 * r] == all[0] && all[2 * r + 1] == all[1];
    longest = std::max(longest, all[2 * r + 1]);
  }
  if (same) return;

  constexpr std::int64_t kMaxTextBytes = std::int64_t{64} << 20;
  longest = std::clamp<std::int64_t>(longest, 1, kMaxTextBytes);
  const auto bytes = static_cast<std::size_t>(longest);
  const Tensor padded = Tensor::zeros({longest}, DType::u8);
  std::memcpy(padded.mutable_bytes(), text.data(), std::min(text.size(), bytes));
  const Tensor texts = Tensor::empty({longest * group.size()}, DType::u8);
  allgather_into_tensor(group, texts, padded)->wait();
  const auto text_of = [&](std::size_t r) {
    const auto length = static_cast<std::size_t>(std::clamp<std::int64_t>(all[2 * r + 1], 0, longest));
    return std::string(reinterpret_cast<const char*>(texts.bytes()) + r * bytes, length);
  };
  std::vector<std::string> found;
  const std::vector<std::string> first = lines_of(text_of(0));
  for (std::size_t r = 1; r < ranks && found.size() < kShown; ++r) {
    add_differences(first, lines_of(text_of(r)), static_cast<int>(r), found);
  }
  throw Mismatch(fmt::format(
      "the ranks do not have the same model (rank {} of {}). First differences: {}. Create the reducer with the same "
      "parameters and buffers, in the same order, and the same options on every rank.",
      group.rank(), group.size(), fmt::join(found, "; ")));
}

}  // namespace hookline::reducer
