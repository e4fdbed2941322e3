// Argument checks by operation type.
#include <hookline/group/arguments.hpp>

#include <numeric>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/read_only.hpp"
#include "group/overlap.hpp"

namespace hookline {
namespace {

class Checks {
 public:
  Checks(const Collective& c, int rank, int size) : c_(c), rank_(rank), size_(size) {}

  void run() const {
    if (c_.reader) return readable();
    switch (c_.type) {
      case OpType::allreduce:
      case OpType::allreduce_coalesced: reduces(); break;
      case OpType::reduce:
        reduces();
        rooted();
        break;
      case OpType::broadcast: rooted(); break;
      case OpType::allgather:
      case OpType::allgather_coalesced:
        count("outputs", c_.outputs.size(), c_.inputs.size() * ranks());
        for (std::size_t i = 0; i < c_.outputs.size(); ++i)
          same_numel(c_.outputs[i], c_.inputs[i % c_.inputs.size()], 1);
        break;
      case OpType::allgather_into_tensor:
      case OpType::allgather_into_tensor_coalesced:
        count("outputs", c_.outputs.size(), c_.inputs.size());
        for (std::size_t i = 0; i < c_.outputs.size(); ++i) same_numel(c_.outputs[i], c_.inputs[i], size_);
        break;
      case OpType::gather:
        rooted();
        count("inputs", c_.inputs.size(), 1);
        count("outputs", c_.outputs.size(), rank_ == c_.root ? ranks() : 0);
        for (const Tensor& t : c_.outputs) same_numel(t, c_.inputs[0], 1);
        break;
      case OpType::scatter:
        rooted();
        count("outputs", c_.outputs.size(), 1);
        count("inputs", c_.inputs.size(), rank_ == c_.root ? ranks() : 0);
        for (const Tensor& t : c_.inputs) same_numel(t, c_.outputs[0], 1);
        break;
      case OpType::reduce_scatter:
        reduces();
        count("inputs", c_.inputs.size(), ranks());
        count("outputs", c_.outputs.size(), 1);
        for (const Tensor& t : c_.inputs) same_numel(t, c_.outputs[0], 1);
        break;
      case OpType::reduce_scatter_tensor:
      case OpType::reduce_scatter_tensor_coalesced:
        reduces();
        count("inputs", c_.inputs.size(), c_.outputs.size());
        for (std::size_t i = 0; i < c_.inputs.size(); ++i) same_numel(c_.inputs[i], c_.outputs[i], size_);
        break;
      case OpType::alltoall:
        count("inputs", c_.inputs.size(), ranks());
        count("outputs", c_.outputs.size(), ranks());
        break;
      case OpType::alltoall_base:
        count("inputs", c_.inputs.size(), 1);
        count("outputs", c_.outputs.size(), 1);
        splits("input", c_.inputs[0], c_.input_splits);
        splits("output", c_.outputs[0], c_.output_splits);
        break;
      case OpType::send:
        peer();
        count("inputs", c_.inputs.size(), 1);
        break;
      case OpType::recv: peer(); [[fallthrough]];
      case OpType::recv_anysource:
        if (size_ == 1) refuse("the group has no other rank to receive from");
        count("outputs", c_.outputs.size(), 1);
        break;
      case OpType::barrier:
      case OpType::monitored_barrier: break;
    }
    one_dtype();
    writable();
    no_overlap();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidArgument(fmt::format("{} on rank {} of {}: {}", name(c_.type), rank_, size_, what));
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }

  void count(const char* what, std::size_t is, std::size_t expected) const {
    if (is != expected) refuse(fmt::format("expected {} {}, got {}", expected, what, is));
  }
  void readable() const {
    count("inputs", c_.inputs.size(), 1);
    count("outputs", c_.outputs.size(), 0);
    if (c_.type == OpType::reduce_scatter_tensor) {
      if (c_.inputs[0].numel() % size_ != 0)
        refuse(fmt::format("cannot split the input {} into {} equal slices", to_string(c_.inputs[0]), size_));
    } else if (c_.type != OpType::allgather_into_tensor) {
      refuse("a BlockReader requires allgather_into_tensor or reduce_scatter_tensor");
    }
  }
  void rooted() const {
    if (c_.root < 0 || c_.root >= size_)
      refuse(fmt::format("root is out of range: expected 0 to {}, got {}", size_ - 1, c_.root));
  }
  void peer() const {
    if (c_.root < 0 || c_.root >= size_ || c_.root == rank_)
      refuse(fmt::format("invalid peer: expected another rank from 0 to {}, got {}", size_ - 1, c_.root));
  }
  void reduces() const {
    if (sources(c_).empty()) refuse("expected at least one tensor, got none");
    for (const Tensor& t : sources(c_)) check(c_.op, t.dtype());
  }
  void same_numel(const Tensor& large, const Tensor& small, std::int64_t times) const {
    if (large.numel() != small.numel() * times) {
      refuse(fmt::format("sizes do not match: expected {} elements, {} times those of {}, got {}",
                         small.numel() * times, times, to_string(small), to_string(large)));
    }
  }
  void splits(const char* what, const Tensor& tensor, const std::vector<std::int64_t>& rows) const {
    const std::int64_t height = tensor.dim() > 0 ? tensor.shape()[0] : 1;
    if (rows.empty()) {
      if (height % size_ != 0)
        refuse(fmt::format("cannot split the {} {} into {} equal slices", what, to_string(tensor), size_));
      return;
    }
    count(fmt::format("{} splits", what).c_str(), rows.size(), ranks());
    for (const std::int64_t n : rows) {
      // Checked one by one: the sum may overflow.
      if (n < 0 || n > height)
        refuse(fmt::format("{} split is out of range: expected 0 to {} rows, got {}", what, height, n));
    }
    const std::int64_t sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    if (sum != height)
      refuse(fmt::format("{} splits do not sum to the rows of the tensor: expected {}, got {}", what, height, sum));
  }
  void one_dtype() const {
    const Tensor* first = nullptr;
    for (const auto* list : {&c_.inputs, &c_.outputs}) {
      for (const Tensor& t : *list) {
        if (!first) first = &t;
        if (t.dtype() != first->dtype())
          refuse(fmt::format("expected tensors of one dtype, got {} and {}", to_string(*first), to_string(t)));
      }
    }
    const bool moves_nothing = c_.type == OpType::barrier || c_.type == OpType::monitored_barrier;
    if (!first && !moves_nothing) refuse("expected at least one tensor, got none");
  }
  void writable() const {
    const bool only_root = c_.type == OpType::reduce || c_.type == OpType::broadcast;
    const bool written = !only_root || (c_.type == OpType::reduce) == (rank_ == c_.root);
    for (const Tensor& t : c_.outputs) {
      if (written && t.read_only()) {
        refuse(fmt::format("the output {} is read-only; {}", to_string(t), core::kPassWritableCopy));
      }
      if (written && group::overlaps_itself(t)) {
        refuse(fmt::format("elements of the output {} overlap in memory. Pass a contiguous copy", to_string(t)));
      }
    }
  }

  // An input may alias the output slot of this rank's own data: no other rank reads that slice of the input, and
  // copying it onto itself is harmless. All backends rely on this rule.
  bool in_place(std::size_t input, std::size_t output) const {
    const Tensor& in = c_.inputs[input];
    const Tensor& out = c_.outputs[output];
    const auto me = static_cast<std::size_t>(rank_);
    switch (c_.type) {
      case OpType::allgather:
      case OpType::allgather_coalesced:
      case OpType::gather: return output == me * c_.inputs.size() + input && group::same_elements(in, out);
      case OpType::allgather_into_tensor:
      case OpType::allgather_into_tensor_coalesced: return input == output && group::is_slice(in, out, rank_, size_);
      case OpType::reduce_scatter:
      case OpType::scatter: return input == me && group::same_elements(in, out);
      case OpType::reduce_scatter_tensor:
      case OpType::reduce_scatter_tensor_coalesced: return input == output && group::is_slice(out, in, rank_, size_);
      default: return false;
    }
  }
  std::string allowed_alias() const {
    switch (c_.type) {
      case OpType::allgather:
      case OpType::allgather_coalesced:
      case OpType::gather: return fmt::format(", or the output of rank {} as the input", rank_);
      case OpType::allgather_into_tensor:
      case OpType::allgather_into_tensor_coalesced:
        return fmt::format(", or slice {} of {} of the output as its input", rank_, size_);
      case OpType::reduce_scatter:
      case OpType::scatter: return fmt::format(", or input {} alone as the output", rank_);
      case OpType::reduce_scatter_tensor:
      case OpType::reduce_scatter_tensor_coalesced:
        return fmt::format(", or slice {} of {} of the input as its output", rank_, size_);
      default: return "";
    }
  }
  void no_overlap() const {
    for (std::size_t i = 0; i < c_.outputs.size(); ++i) {
      for (std::size_t j = i + 1; j < c_.outputs.size(); ++j) {
        if (group::overlap(c_.outputs[i], c_.outputs[j])) refuse(fmt::format("outputs {} and {} overlap", i, j));
      }
    }
    if (works_in_place(c_.type)) return;
    for (std::size_t i = 0; i < c_.inputs.size(); ++i) {
      for (std::size_t j = 0; j < c_.outputs.size(); ++j) {
        if (group::overlap(c_.inputs[i], c_.outputs[j]) && !in_place(i, j)) {
          refuse(fmt::format("output {} overlaps input {}: expected separate memory{}. Pass a copy", j, i,
                             allowed_alias()));
        }
      }
    }
  }

  const Collective& c_;
  const int rank_;
  const int size_;
};

}  // namespace

void check_arguments(const Collective& collective, int rank, int size) { Checks(collective, rank, size).run(); }

}  // namespace hookline
