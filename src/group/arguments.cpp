// Argument checks by operation type.
#include <hookline/group/arguments.hpp>

#include <numeric>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/read_only.hpp"
#include "group/tensor_aliasing.hpp"

namespace hookline {
namespace {

class ArgumentChecker {
 public:
  ArgumentChecker(const Operation& c, int rank, int size) : c_(c), rank_(rank), size_(size) {}

  void run() const {
    if (c_.reader) return check_block_reader();
    switch (c_.type) {
      case OpType::allreduce:
      case OpType::allreduce_coalesced: check_reduction(); break;
      case OpType::reduce:
        check_reduction();
        check_root();
        break;
      case OpType::broadcast: check_root(); break;
      case OpType::allgather:
      case OpType::allgather_coalesced:
        expect_count("outputs", c_.outputs.size(), c_.inputs.size() * ranks());
        for (std::size_t i = 0; i < c_.outputs.size(); ++i)
          check_numel(c_.outputs[i], c_.inputs[i % c_.inputs.size()], 1);
        break;
      case OpType::allgather_into_tensor:
      case OpType::allgather_into_tensor_coalesced:
        expect_count("outputs", c_.outputs.size(), c_.inputs.size());
        for (std::size_t i = 0; i < c_.outputs.size(); ++i) check_numel(c_.outputs[i], c_.inputs[i], size_);
        break;
      case OpType::gather:
        check_root();
        expect_count("inputs", c_.inputs.size(), 1);
        expect_count("outputs", c_.outputs.size(), rank_ == c_.root ? ranks() : 0);
        for (const Tensor& t : c_.outputs) check_numel(t, c_.inputs[0], 1);
        break;
      case OpType::scatter:
        check_root();
        expect_count("outputs", c_.outputs.size(), 1);
        expect_count("inputs", c_.inputs.size(), rank_ == c_.root ? ranks() : 0);
        for (const Tensor& t : c_.inputs) check_numel(t, c_.outputs[0], 1);
        break;
      case OpType::reduce_scatter:
        check_reduction();
        expect_count("inputs", c_.inputs.size(), ranks());
        expect_count("outputs", c_.outputs.size(), 1);
        for (const Tensor& t : c_.inputs) check_numel(t, c_.outputs[0], 1);
        break;
      case OpType::reduce_scatter_tensor:
      case OpType::reduce_scatter_tensor_coalesced:
        check_reduction();
        expect_count("inputs", c_.inputs.size(), c_.outputs.size());
        for (std::size_t i = 0; i < c_.inputs.size(); ++i) check_numel(c_.inputs[i], c_.outputs[i], size_);
        break;
      case OpType::alltoall:
        expect_count("inputs", c_.inputs.size(), ranks());
        expect_count("outputs", c_.outputs.size(), ranks());
        break;
      case OpType::alltoall_base:
        expect_count("inputs", c_.inputs.size(), 1);
        expect_count("outputs", c_.outputs.size(), 1);
        check_splits("input", c_.inputs[0], c_.input_splits);
        check_splits("output", c_.outputs[0], c_.output_splits);
        break;
      case OpType::send:
        check_peer();
        expect_count("inputs", c_.inputs.size(), 1);
        break;
      case OpType::recv: check_peer(); [[fallthrough]];
      case OpType::recv_anysource:
        if (size_ == 1) refuse("the group has no other rank to receive from");
        expect_count("outputs", c_.outputs.size(), 1);
        break;
      case OpType::barrier:
      case OpType::monitored_barrier: break;
    }
    check_one_dtype();
    check_writable();
    check_no_overlap();
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw InvalidArgument(fmt::format("{} on rank {} of {}: {}", name(c_.type), rank_, size_, problem));
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size_); }

  void expect_count(const char* what, std::size_t actual, std::size_t expected) const {
    if (actual != expected) refuse(fmt::format("expected {} {}, got {}", expected, what, actual));
  }
  void check_block_reader() const {
    expect_count("inputs", c_.inputs.size(), 1);
    expect_count("outputs", c_.outputs.size(), 0);
    if (c_.type == OpType::reduce_scatter_tensor) {
      if (c_.inputs[0].numel() % size_ != 0)
        refuse(fmt::format("cannot split the input into equal slices: expected a multiple of {} elements, got {}",
                           size_, to_string(c_.inputs[0])));
    } else if (c_.type != OpType::allgather_into_tensor) {
      refuse("a BlockReader requires allgather_into_tensor or reduce_scatter_tensor");
    }
  }
  void check_root() const {
    if (c_.root < 0 || c_.root >= size_)
      refuse(fmt::format("root is out of range: expected 0 to {}, got {}", size_ - 1, c_.root));
  }
  void check_peer() const {
    if (c_.root < 0 || c_.root >= size_ || c_.root == rank_)
      refuse(fmt::format("invalid peer: expected another rank from 0 to {}, got {}", size_ - 1, c_.root));
  }
  void check_reduction() const {
    if (source_tensors(c_).empty()) refuse("expected at least one tensor, got none");
    for (const Tensor& t : source_tensors(c_)) check(c_.op, t.dtype());
  }
  void check_numel(const Tensor& large, const Tensor& small, std::int64_t times) const {
    if (large.numel() != small.numel() * times) {
      refuse(fmt::format("sizes do not match: expected {} elements, {} times those of {}, got {}",
                         small.numel() * times, times, to_string(small), to_string(large)));
    }
  }
  void check_splits(const char* what, const Tensor& tensor, const std::vector<std::int64_t>& rows) const {
    const std::int64_t height = tensor.dim() > 0 ? tensor.shape()[0] : 1;
    if (rows.empty()) {
      if (height % size_ != 0)
        refuse(fmt::format(
            "cannot split the {} into equal slices: expected a multiple of {} rows, got {}. Pass {} splits.", what,
            size_, to_string(tensor), what));
      return;
    }
    expect_count(fmt::format("{} splits", what).c_str(), rows.size(), ranks());
    for (const std::int64_t n : rows) {
      // Checked one by one: the sum may overflow.
      if (n < 0 || n > height)
        refuse(fmt::format("{} split is out of range: expected 0 to {} rows, got {}", what, height, n));
    }
    const std::int64_t sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    if (sum != height)
      refuse(fmt::format("{} splits do not sum to the rows of the tensor: expected {}, got {}", what, height, sum));
  }
  void check_one_dtype() const {
    const Tensor* first = nullptr;
    for (const auto* list : {&c_.inputs, &c_.outputs}) {
      for (const Tensor& t : *list) {
        if (!first) first = &t;
        if (t.dtype() != first->dtype())
          refuse(fmt::format("expected tensors of one dtype, got {} and {}", to_string(*first), to_string(t)));
      }
    }
    const bool is_barrier = c_.type == OpType::barrier || c_.type == OpType::monitored_barrier;
    if (!first && !is_barrier) refuse("expected at least one tensor, got none");
  }
  void check_writable() const {
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
  bool is_allowed_alias(std::size_t input, std::size_t output) const {
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
  std::string allowed_alias_text() const {
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
  void check_no_overlap() const {
    for (std::size_t i = 0; i < c_.outputs.size(); ++i) {
      for (std::size_t j = i + 1; j < c_.outputs.size(); ++j) {
        if (group::overlap(c_.outputs[i], c_.outputs[j])) refuse(fmt::format("outputs {} and {} overlap", i, j));
      }
    }
    if (works_in_place(c_.type)) return;
    for (std::size_t i = 0; i < c_.inputs.size(); ++i) {
      for (std::size_t j = 0; j < c_.outputs.size(); ++j) {
        if (group::overlap(c_.inputs[i], c_.outputs[j]) && !is_allowed_alias(i, j)) {
          refuse(fmt::format("output {} overlaps input {}: expected separate memory{}. Pass a copy", j, i,
                             allowed_alias_text()));
        }
      }
    }
  }

  const Operation& c_;
  const int rank_;
  const int size_;
};

}  // namespace

void check_arguments(const Operation& operation, int rank, int size) { ArgumentChecker(operation, rank, size).run(); }

}  // namespace hookline
